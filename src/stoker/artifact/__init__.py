"""What a built thing is: wheels, ELF files, device code; and the mechanics of rewriting them."""
