//! Errors of kernels: each file in `errors/` fails to compile with the messages beside it.

#[test]
fn messages() {
    trybuild::TestCases::new().compile_fail("tests/errors/*.rs");
}
