//! Any text is rewritten, and each of its lines stays the line it was.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let rewritten = elinvar_msl::rewritten_for_fuzzing(text);
    // It is rewritten twice, the second time with address spaces told apart. Each time one line goes before the text,
    // two ends of line after it.
    assert_eq!(rewritten.matches('\n').count(), 2 * (text.matches('\n').count() + 3));
});
