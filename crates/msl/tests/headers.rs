//! The headers, checked by static assertions that clang evaluates.

use elinvar_driver::Source;
use elinvar_msl::{Program, Toolchain};

#[test]
fn headers_hold_what_msl_promises() {
    let source = Source::named("headers.metal", include_str!("metal/headers.metal"));
    match Program::compile(&Toolchain::find().unwrap(), &source) {
        Ok(program) => assert_eq!(program.warnings(), []),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_wrong_assertion_is_seen() {
    let source = Source::msl("static_assert(sizeof(float3) == 12, \"size\");");
    assert!(Program::compile(&Toolchain::find().unwrap(), &source).is_err());
}
