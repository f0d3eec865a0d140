"""Where a PyTorch tree says which architectures it accepts, here for all functions at once."""

_SUPPORTED_ARCHES: tuple[str, ...] = (
    *("7.5", "8.0", "8.6", "9.0", "9.0a"),
    *("10.0", "10.0a", "10.3", "12.0", "12.0a"),
)
