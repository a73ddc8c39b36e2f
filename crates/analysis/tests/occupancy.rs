//! Occupancy, compared with NVIDIA's calculator: `occupancy.txt` has its results for thread counts, registers and shared memory drawn at random.

use elinvar_analysis::{Multiprocessor, occupancy};

#[test]
fn resident_blocks_are_those_of_the_calculator() {
    let (mut lines, mut limits) = (0, std::collections::BTreeMap::new());
    for line in include_str!("occupancy.txt").lines().filter(|line| !line.starts_with('#')) {
        let [capability, rest @ ..] = &line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let (major, minor) = capability.split_once('.').expect("major.minor");
        let numbers: Vec<u32> = rest.iter().map(|number| number.parse().expect("a number")).collect();
        let [threads, registers, bytes, blocks] = numbers[..] else { panic!("{line}") };
        let core = Multiprocessor::of(major.parse().unwrap(), minor.parse().unwrap()).expect(line);
        let found = occupancy(&core, threads, registers, u64::from(bytes));
        assert_eq!(found.groups, blocks, "{line}: {found:?}");
        lines += 1;
        *limits.entry(format!("{:?}", found.limiter)).or_insert(0) += 1;
    }
    assert_eq!(lines, 168);
    assert!(["Warps", "Registers", "Memory"].iter().all(|name| limits.contains_key(*name)), "{limits:?}");
}
