"""Makes a wheel portable: facts of the wheel and of the libraries around it, a plan, one pass.

``read_built_wheel`` reads the wheel, ``gather`` finds what goes along, ``make_plan`` decides and
``apply`` writes. What the user wants is a ``PackageRequest``.
"""
