"""What a wheel, a library, a folder or an installed distribution holds, and what follows from it.

``facts`` reads, ``inspecting`` concludes, ``facts_page`` shows; nothing is unpacked or executed.
"""
