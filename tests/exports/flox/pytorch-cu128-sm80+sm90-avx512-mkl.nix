# cu128-sm80+sm90-avx512-mkl: written by `stoker export nix`. Built by nixpkgs, from the PyTorch that nixpkgs pins.
#   nix-build -E 'with import <nixpkgs> { config.allowUnfree = true; }; callPackage ./pytorch-cu128-sm80+sm90-avx512-mkl.nix { }'
{ python312Packages, cudaPackages_12_8, blas, mkl }:

(python312Packages.torch.override {
  cudaSupport = true;
  gpuTargets = [ "8.0" "9.0" ];
  cudaPackages = cudaPackages_12_8;
  blas = blas.override { blasProvider = mkl; };
}).overrideAttrs (old: {
  pname = "pytorch-cu128-sm80+sm90-avx512-mkl";
  env = (old.env or { }) // {
    NIX_CFLAGS_COMPILE =
      toString (old.env.NIX_CFLAGS_COMPILE or "") + " -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512cd -mfma -mf16c";
  };
})
