//! The names of the suite's cases.

use std::collections::HashSet;

use elinvar_conformance::suite::cases;

#[test]
fn every_check_has_a_name_of_its_own() {
    let mut names = HashSet::new();
    for case in cases() {
        assert!(names.insert(case.name.to_owned()), "{} is there twice", case.name);
        for part in (case.parts)() {
            let name = format!("{}: {part}", case.name);
            assert!(!names.contains(&name), "{name} is there twice");
            names.insert(name);
        }
    }
    assert!(names.len() >= 2000, "{} checks", names.len());
}
