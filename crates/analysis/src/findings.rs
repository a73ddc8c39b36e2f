//! Findings: accesses and branches that cost more than their bytes and operations, with figures.

use std::collections::BTreeSet;

use elinvar_ir::Location;
use serde::Serialize;

use crate::{Access, Analysis, Class, Kind, SECTOR, Space};

/// A kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// A simdgroup's access moves at least twice the bytes that it uses.
    Uncoalesced,
    /// Lanes access different words of a bank of threadgroup memory.
    BankConflicts,
    /// All threads update one address by atomic operations.
    ContendedAtomic,
    /// Lanes take a branch differently, on loaded data, and the ways have operations.
    DivergentBranch,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 4] =
        [Self::Uncoalesced, Self::BankConflicts, Self::ContendedAtomic, Self::DivergentBranch];

    /// The name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uncoalesced => "uncoalesced",
            Self::BankConflicts => "bank-conflicts",
            Self::ContendedAtomic => "contended-atomic",
            Self::DivergentBranch => "divergent-branch",
        }
    }

    /// What it finds.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Uncoalesced => "An access of a simdgroup moves at least twice the bytes that it uses.",
            Self::BankConflicts => {
                "Lanes of a simdgroup access different words of a bank of threadgroup memory."
            }
            Self::ContendedAtomic => "All threads update one address by atomic operations.",
            Self::DivergentBranch => {
                "Lanes of a simdgroup take a branch differently, depending on loaded data."
            }
        }
    }
}

/// A finding.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Its kind.
    pub rule: Rule,
    /// Its place; `None` if the code has none, as for the kernel as a whole.
    pub location: Option<Location>,
    /// What it costs, in figures.
    pub message: String,
}

impl Analysis {
    /// The findings, in the order of the code, each place and message once.
    pub fn findings(&self) -> Vec<Finding> {
        let mut all: Vec<Finding> = self.accesses.iter().filter_map(|access| self.finding(access)).collect();
        for branch in self.divergent_branches.iter().filter(|branch| branch.by_data) {
            let operations = branch.operations.flops() + branch.operations.integer;
            if operations > 0.0 {
                let message = format!(
                    "lanes take this branch by data that they loaded: where they differ, a simdgroup executes both ways, {operations} operations"
                );
                all.push(Finding { rule: Rule::DivergentBranch, location: branch.location.clone(), message });
            }
        }
        let mut found: Vec<Finding> = Vec::new();
        for finding in all {
            let is_known =
                |known: &Finding| known.location == finding.location && known.message == finding.message;
            if !found.iter().any(is_known) {
                found.push(finding);
            }
        }
        found
    }

    fn finding(&self, access: &Access) -> Option<Finding> {
        if access.is_rare {
            return None;
        }
        let object = access.object.as_deref().unwrap_or("memory");
        let found =
            |rule: Rule, message: String| Some(Finding { rule, location: access.location.clone(), message });
        if access.kind == Kind::Atomic
            && access.class == Class::Broadcast
            && access.space != Space::Threadgroup
        {
            let message =
                format!("all threads update one address of `{object}`: their operations take turns");
            return found(Rule::ContendedAtomic, message);
        }
        if let Some(factor) = access.bank_conflicts.filter(|factor| *factor >= 2.0) {
            let stride = access.lane_stride_bytes.unwrap_or(0);
            let message = format!(
                "lanes are {stride} bytes apart in `{object}`: in a simdgroup along x, bank conflicts lengthen this access {factor} times"
            );
            return found(Rule::BankConflicts, message);
        }
        if access.class != Class::Strided || access.space == Space::Threadgroup {
            return None;
        }
        let (moved, used) = self.traffic(access)?;
        if 2 * used > moved {
            return None;
        }
        let apart = access.lane_stride.as_deref().unwrap_or("an unknown number of");
        let message = format!(
            "lanes are {apart} bytes apart in `{object}`: a simdgroup along x moves {moved} bytes and uses {used} of them here"
        );
        found(Rule::Uncoalesced, message)
    }

    /// Bytes that a simdgroup moves for a strided access and those beside it, as of the fields of a structure, and bytes that it uses of them.
    fn traffic(&self, access: &Access) -> Option<(u64, u64)> {
        // Lanes whose distance is a formula are in sectors of their own.
        const APART: i128 = 1 << 20;
        let step = access.lane_stride_bytes.map_or(APART, i128::from);
        let (formula, _) = access.place.as_ref()?;
        let beside = self.accesses.iter().filter(|other| {
            let same =
                other.object == access.object && other.loops == access.loops && other.class == access.class;
            same && other.place.as_ref().is_some_and(|(other, _)| other == formula)
        });
        let mut bytes: BTreeSet<i128> = BTreeSet::new();
        for (other, constant) in beside.filter_map(|other| Some((other, other.place.as_ref()?.1))) {
            for lane in 0..32 {
                let start = lane * step + constant;
                bytes.extend(start..start + i128::from(other.bytes));
            }
        }
        let sectors: BTreeSet<i128> = bytes.iter().map(|byte| byte.div_euclid(i128::from(SECTOR))).collect();
        Some((sectors.len() as u64 * SECTOR, bytes.len() as u64))
    }
}
