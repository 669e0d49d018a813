/* Samples' ops that Weft does not compile, or not in all modes. This list may only shrink. */
"aten._assert_tensor_metadata.default",
"aten._assert_async.msg",
"aten._fft_c2c.default",
"aten._fft_c2r.default",
"aten._fft_r2c.default",
"aten.fft_fftn.default",
"aten.fft_irfft.default",
"aten.fft_irfft2.default",
"aten.fft_rfft.default",
"aten.fft_rfft2.default",
"aten.real.default",
"aten.view_as_real.default",
"aten.index.Tensor", /* by a mask: the size of the result depends on data */
"aten.one_hot.default", /* without the number of classes, likewise */
