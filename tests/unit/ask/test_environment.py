"""Which variables of the user a program in the room sees."""

from stoker.ask.room import without_session


def test_secrets_and_the_session_are_left_out() -> None:
    given = {
        "PATH": "/usr/bin",
        "TORCH_CUDA_ARCH_LIST": "9.0",
        "GITHUB_TOKEN": "x",
        "SSH_AUTH_SOCK": "/run/ssh",
        "PYTHONPATH": "/x",
        "LD_PRELOAD": "/x.so",
        "_": "/usr/bin/stoker",
        "OLDPWD": "/x",
    }
    assert set(without_session(given)) == {"PATH", "TORCH_CUDA_ARCH_LIST"}
