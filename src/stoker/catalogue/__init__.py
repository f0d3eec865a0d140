"""Catalogues of wheels: made, kept whole while many publish, read, and chosen from.

What a wheel holds is read by `artifact`; whether it is sound is judged by `deliver`.
"""
