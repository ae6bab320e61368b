// RUN: tk-opt %s --split-input-file --verify-diagnostics

megakernel.kernel @early() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{'megakernel.repeat' op is followed by another op than 'megakernel.return' (R1)}}
  megakernel.repeat <cta>
  megakernel.phase {}
  megakernel.return
}

// -----

megakernel.kernel @twice() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{'megakernel.repeat' op is followed by another op than 'megakernel.return' (R1)}}
  megakernel.repeat <cta>
  megakernel.repeat <cta>
  megakernel.return
}
