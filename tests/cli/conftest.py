import pytest
from refusals import Place, make_shared


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    return make_shared(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def place(shared, tmp_path):
    return Place(shared, tmp_path)
