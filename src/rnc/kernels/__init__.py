"""The Triton kernels of `rnc.loss_triton`, each behind a function of tensors."""
