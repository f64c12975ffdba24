"""Makes the modules beside this file importable from every test (pytest adds this folder to sys.path)."""

import os

# PyTorch's threads wait for each other where tests run side by side: small models take several times as long. Set
# before anything loads OpenMP; program.environment() keeps it from the program.
os.environ.setdefault("OMP_NUM_THREADS", "1")
