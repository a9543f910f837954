import os

import pytest

from proxy.errors import Code, VaultError
from proxy.objectstore.bucket_path import BucketPath, parse_bucket_path
from tests.support.bucket import Server, fresh_files, shared


@pytest.fixture
def folder() -> BucketPath:
    return parse_bucket_path(fresh_files(), file=False)


def test_a_file_is_written_whole_listed_read_and_removed(folder: BucketPath) -> None:
    content = os.urandom(17 << 20)  # more than a part, and than a read
    path = folder / "one.backup"
    assert (folder.is_dir(), path.is_dir(), path.exists()) == (True, False, False)
    with path.create() as file:
        file.write(b"a line\n")
        file.write(content)
        assert not path.exists(), "nothing is visible before the end"
    assert [one.name for one in folder.iterdir()] == ["one.backup"]
    assert str(path) == f"{folder}/one.backup"
    with path.open("rb") as read:
        assert read.readline() == b"a line\n"
        assert read.read() == content
    path.unlink()
    path.unlink()
    assert list(folder.iterdir()) == []


def test_a_file_whose_making_fails_is_not_there_and_leaves_no_parts(folder: BucketPath) -> None:
    def failing() -> None:
        with (folder / "x").create() as file:
            file.write(os.urandom(40 << 20))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    assert not (folder / "x").exists()
    assert shared().unfinished() == []


def test_the_address_of_a_file_ends_with_its_name() -> None:
    path = parse_bucket_path(fresh_files().replace("?", "/deep/a.backup?"), file=True)
    assert path.name == "a.backup"
    assert str(path).endswith("/deep/a.backup")
    with pytest.raises(ValueError, match="name a file"):
        parse_bucket_path("s3://bucket?region=x", file=True)
    with pytest.raises(ValueError, match="name a bucket"):
        parse_bucket_path("s3://", file=False)


def test_faults_of_the_server_are_told_in_our_terms() -> None:
    path = parse_bucket_path(shared().address("x", bucket="no-such-bucket"), file=False)
    with pytest.raises(VaultError, match="no such bucket") as caught:
        list(path.iterdir())
    assert caught.value.code is Code.FILES_UNAVAILABLE
    server = Server()
    away = parse_bucket_path(server.address("x", timeout="1"), file=False)
    with (away / "a").create() as file:
        file.write(b"content")
    server.kill()
    with pytest.raises(VaultError, match="cannot be reached"):
        (away / "a").open("rb")
