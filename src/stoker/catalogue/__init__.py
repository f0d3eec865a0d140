"""Catalogues of wheels: publishing, reading and choosing.

What a wheel holds is read by `artifact`; whether it is sound is judged by `deliver`.
"""
