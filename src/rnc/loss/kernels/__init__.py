"""The Triton kernels of `rnc.loss.fused`, each behind a function of tensors."""
