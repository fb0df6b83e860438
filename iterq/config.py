"""How lists of numbers are written on the command line, for every command alike."""

from typing import Annotated

from tyro.constructors import PrimitiveConstructorSpec

from iterq.errors import Refusal


def integers(text: str, what: str) -> tuple[int, ...]:
    """`0,3,7` and `0-4` and mixtures of them, without repetitions, in the order given."""
    numbers: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise Refusal(f"{what}: {text!r} is not a list of non-negative integers such as 0,3,7 or 0-4")
        numbers += range(int(low), int(high if dash else low) + 1)
    if not numbers:
        raise Refusal(f"{what}: {text!r} names nothing")
    return tuple(dict.fromkeys(numbers))


def seeds(text: str) -> tuple[int, ...]:
    """A count (`5`), a range (`0-4`) or a list (`0,3,7`)."""
    if text.strip().isdecimal():
        if int(text) < 1:
            raise Refusal(f"--seeds: {text} is not a count of at least 1")
        return tuple(range(int(text)))
    return integers(text, "--seeds")


def window_sizes(text: str) -> tuple[int, ...]:
    """One window size (`5`) or several (`1,4,7`)."""
    return integers(text, "--K")


def _spec(parse, metavar: str) -> PrimitiveConstructorSpec:
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: parse(words[0]),
        is_instance=lambda x: isinstance(x, tuple),
        str_from_instance=lambda x: [",".join(map(str, x))],
    )


Seeds = Annotated[tuple[int, ...], _spec(seeds, "COUNT|A-B|A,B")]
WindowSizes = Annotated[tuple[int, ...], _spec(window_sizes, "K|A,B")]
