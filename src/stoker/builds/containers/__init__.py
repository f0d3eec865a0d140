"""`stoker build --container`: the whole build runs inside a container."""
