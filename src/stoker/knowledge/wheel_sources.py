"""Where projects publish wheels beside the package indexes."""

from stoker.knowledge import rows
from stoker.model.wheel_source import WheelSource

wheel_sources = rows("wheel_sources", WheelSource)
