"""The one exception for bad input: its message is the line a user sees, its exit code is 2."""


class Refusal(Exception):
    """Something the user asked for cannot be done; nothing was changed."""


def require(holds: bool, message: str) -> None:
    """Refuse with `message` unless it holds."""
    if not holds:
        raise Refusal(message)
