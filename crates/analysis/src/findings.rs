//! Findings: accesses and branches that cost more than their bytes and operations, with figures.

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
        let mut all: Vec<Finding> = self.accesses.iter().filter_map(finding).collect();
        for branch in self.divergent_branches.iter().filter(|branch| branch.by_data) {
            let operations = branch.operations.flops() + branch.operations.integer;
            if operations > 0.0 {
                let message = format!(
                    "lanes take this branch by data that they loaded: a simdgroup executes both ways, {operations} operations"
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
}

fn finding(access: &Access) -> Option<Finding> {
    let object = access.object.as_deref().unwrap_or("memory");
    let found =
        |rule: Rule, message: String| Some(Finding { rule, location: access.location.clone(), message });
    if access.kind == Kind::Atomic && access.class == Class::Broadcast && access.space != Space::Threadgroup {
        let message = format!("all threads update one address of `{object}`: their operations take turns");
        return found(Rule::ContendedAtomic, message);
    }
    if let Some(factor) = access.bank_conflicts.filter(|factor| *factor >= 2.0) {
        let stride = access.lane_stride_bytes.unwrap_or(0);
        let message = format!(
            "lanes are {stride} bytes apart in `{object}`: bank conflicts lengthen this access {factor} times"
        );
        return found(Rule::BankConflicts, message);
    }
    let is_strided = access.class == Class::Strided;
    let (sectors, efficiency) = (access.sectors?, access.efficiency?);
    if is_strided && efficiency <= 0.5 {
        let apart = match (access.lane_stride_bytes, &access.lane_stride) {
            (Some(bytes), _) => format!("{bytes} bytes"),
            (None, Some(formula)) => format!("{formula} bytes"),
            (None, None) => "an unknown distance".to_owned(),
        };
        let moved = sectors * SECTOR;
        let used = (efficiency * moved as f64).round();
        let message = format!(
            "lanes are {apart} apart in `{object}`: a simdgroup moves {moved} bytes in {sectors} transactions and uses {used}"
        );
        return found(Rule::Uncoalesced, message);
    }
    None
}
