"""Makes a wheel portable.

``read_built_wheel`` reads the wheel, ``find_closure`` finds the libraries to bundle,
``make_package_plan`` makes the plan and ``apply_plan`` writes the new wheel. A ``PackageRequest``
holds the user's options.
"""
