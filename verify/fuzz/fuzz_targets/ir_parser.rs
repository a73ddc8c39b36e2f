//! Any text is parsed or refused; what is parsed prints to text that parses to the same, and the
//! verifier and the lookups do not panic on it.
#![no_main]

use elinvar_ir::{Module, verify};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(module) = Module::parse(text) else { return };
    let printed = module.to_string();
    let again = match Module::parse(&printed) {
        Ok(again) => again,
        Err(error) => panic!("what was printed does not parse: {error}\n{printed}"),
    };
    assert_eq!(printed, again.to_string());
    let _errors = verify(&module);
    for inst in module.functions.iter().flat_map(|f| &f.blocks).flat_map(|b| &b.insts) {
        let _location = module.location(&inst.metadata);
    }
});
