# cpu-avx2-py311: written by `stoker export nix`. Built by nixpkgs, from the PyTorch that nixpkgs pins.
#   nix-build -E 'with import <nixpkgs> { config.allowUnfree = true; }; callPackage ./pytorch-cpu-avx2-py311.nix { }'
{ python311Packages }:

(python311Packages.torch.override {

}).overrideAttrs (old: {
  pname = "pytorch-cpu-avx2-py311";
  env = (old.env or { }) // {
    NIX_CFLAGS_COMPILE =
      toString (old.env.NIX_CFLAGS_COMPILE or "") + " -mavx2 -mfma -mf16c";
  };
})
