"""Makes the modules beside this file importable from every test (pytest adds this folder to sys.path)."""
