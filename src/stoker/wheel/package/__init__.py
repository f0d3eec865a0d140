"""Makes a wheel portable.

``read_built_wheel`` reads the wheel, ``gather`` finds the libraries to bundle, ``make_plan`` makes
the plan and ``apply`` writes the new wheel. A ``PackageRequest`` holds the user's options.
"""
