//! Any text is rewritten, and each of its lines stays the line it was.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let rewritten = elinvar_msl::rewritten_for_fuzzing(text);
    // One line goes before the text, two ends of line after it.
    assert_eq!(rewritten.matches('\n').count(), text.matches('\n').count() + 3);
});
