"""What holds for the tests themselves."""

from hypothesis import settings


def test_no_example_has_a_deadline():
    assert settings().deadline is None
    assert settings(max_examples=3).deadline is None
