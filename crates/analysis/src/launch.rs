//! Totals of a launch: paths of threads, put together by simdgroups.
//!
//! All threads of small launches are followed. Of large ones, threadgroups at the grid's edges and in its middle are followed separately,
//! spread evenly, and stand for those between them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use elinvar_driver::{Error, Result};
use serde::Serialize;

use elinvar_ir::BlockId;

use crate::Analysis;
use crate::access::Access;
use crate::evaluate::{Launch, Number, Position3};
use crate::forms::{Kernel, Space};
use crate::operations::{self, Operations};
use crate::poly::Root;
use crate::traffic::{self, LINE, SECTOR};
use crate::walk::{Kind, Path, Site, walk};

/// Threads of a simdgroup.
const SIMDGROUP: u64 = 32;
/// Most threads of a threadgroup.
const MAX_THREADS: u64 = 1024;

/// How much of a launch is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Threads that are followed, at least a simdgroup of each kind of threadgroup.
    pub threads: u64,
    /// Iterations of a loop that are followed, if its counters advance by constants; at least 4.
    pub iterations: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { threads: 4096, iterations: 32 }
    }
}

impl Effort {
    /// Follows all threads in all iterations.
    pub const ALL: Self = Self { threads: u64::MAX, iterations: u64::MAX };
}

/// Totals of one access.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SiteTotals {
    /// Index in [`Analysis::accesses`].
    pub access: usize,
    /// Executions, by threads.
    pub executions: f64,
    /// Bytes that threads access.
    pub bytes: f64,
    /// Executions by simdgroups.
    pub simdgroup_executions: f64,
    /// Transactions of 32 bytes.
    pub sectors: f64,
    /// Transactions of 128 bytes.
    pub lines: f64,
    /// For threadgroup memory, the mean factor of bank conflicts.
    pub bank_conflicts: Option<f64>,
    /// The share of its addresses that are unknown, 0 to 1; their transactions count as one for each lane.
    pub unknown: f64,
}

/// Totals of a launch.
#[derive(Clone, Debug, Serialize)]
pub struct LaunchTotals {
    /// Threads of the grid.
    pub grid: [u32; 3],
    /// Threads of a threadgroup.
    pub group: [u32; 3],
    /// For each access that is executed, in the order of [`Analysis::accesses`].
    pub accesses: Vec<SiteTotals>,
    /// Operations of all threads.
    pub operations: Operations,
    /// Bytes of device and constant memory that threads access.
    pub used_bytes: f64,
    /// Bytes that their transactions of 32 bytes move. Neighboring accesses of up to 16 bytes that GPUs execute as one, as of the components of
    /// an aligned vector, are one access here.
    pub moved_bytes: f64,
    /// Bytes of device and constant memory that caches that never miss twice would move: the sectors of 32 bytes between the lowest and the
    /// highest address of each argument, at most those that its transactions move; once for what is loaded, unless threads store it first,
    /// and once for what is stored.
    pub footprint_bytes: f64,
    /// Mean share of a simdgroup's lanes that are idle while it executes a block, 0 to 1, weighted by the blocks' operations.
    pub idle_lanes: f64,
    /// Mean number of iterations of each loop, by its entry.
    pub iterations: Vec<f64>,
    /// Whether everything was followed: each number is exact, unless `is_estimate`.
    pub is_complete: bool,
    /// Whether branches, loops or addresses depend on the contents of memory.
    pub is_estimate: bool,
}

#[derive(Default)]
struct Sum {
    executions: f64,
    simdgroups: f64,
    sectors: f64,
    lines: f64,
    conflicts: f64,
    unknown: f64,
}

/// What is accessed of an argument.
#[derive(Clone, Copy)]
struct Extent {
    /// The lowest address and the first one behind the highest.
    low: i128,
    high: i128,
    /// Bytes that transactions move.
    moved: f64,
}

impl Extent {
    /// Bytes of the sectors from the lowest to the highest address, at most those that are moved.
    fn bytes(&self) -> f64 {
        let sector = i128::from(SECTOR);
        let sectors = (self.high - 1).div_euclid(sector) - self.low.div_euclid(sector) + 1;
        ((sectors * sector) as f64).min(self.moved)
    }
}

struct Totals<'k, 'm> {
    kernel: &'k Kernel<'m>,
    /// Size in bytes, address space and kind of each access.
    sites: HashMap<Site, (u64, Space, Kind)>,
    sums: HashMap<Site, Sum>,
    blocks: Vec<f64>,
    /// Executions by whole simdgroups, times 32.
    issued: Vec<f64>,
    /// Accesses that GPUs execute as one, first to last.
    vectors: Vec<Vec<Site>>,
    /// Transactions of a vector's accesses by themselves that it does not have.
    merged: f64,
    /// By argument, of loads and of stores.
    extents: BTreeMap<(Root, Kind), Extent>,
    /// Arguments that some thread loads before it stores them.
    loaded: BTreeSet<Root>,
    iterations: Vec<f64>,
    is_complete: bool,
    is_estimate: bool,
}

impl Analysis {
    /// Totals of a launch.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty threadgroup, or one of more than 1024 threads.
    pub fn launch(&self, launch: &Launch, effort: Effort) -> Result<LaunchTotals> {
        let volume: u64 = launch.group.iter().map(|size| u64::from(*size)).product();
        if launch.group.iter().any(|size| u64::from(*size) > MAX_THREADS)
            || !(1..=MAX_THREADS).contains(&volume)
        {
            let name = &self.kernel;
            let size = launch.group;
            return Err(Error::invalid(format!(
                "kernel `{name}` cannot have threadgroups of {size:?} threads: 1 to {MAX_THREADS} threads are allowed"
            )));
        }
        let kernel = self.source.kernel()?;
        let sites =
            self.accesses.iter().map(|access| (access.site, (access.bytes, access.space, access.kind)));
        let mut totals = Totals {
            kernel: &kernel,
            sites: sites.collect(),
            sums: HashMap::new(),
            blocks: vec![0.0; kernel.function.blocks.len()],
            issued: vec![0.0; kernel.function.blocks.len()],
            vectors: vectors(&self.accesses),
            merged: 0.0,
            extents: BTreeMap::new(),
            loaded: BTreeSet::new(),
            iterations: vec![0.0; kernel.loops.all.len()],
            is_complete: true,
            is_estimate: false,
        };
        totals.follow(launch, effort);
        Ok(totals.finish(self, launch))
    }
}

/// Threadgroups of the same size, by the ranges of their positions.
fn strata(launch: &Launch) -> Vec<[(u32, u32); 3]> {
    let parts = |d: usize| {
        let groups = launch.grid[d].div_ceil(launch.group[d]);
        let is_partial = !launch.grid[d].is_multiple_of(launch.group[d]);
        match (groups, is_partial) {
            (0, _) => Vec::new(),
            (1, _) | (_, false) => vec![(0, groups)],
            (_, true) => vec![(0, groups - 1), (groups - 1, groups)],
        }
    };
    let mut all = Vec::new();
    for z in parts(2) {
        for y in parts(1) {
            all.extend(parts(0).into_iter().map(|x| [x, y, z]));
        }
    }
    all
}

/// Up to `count` distinct numbers below `all`, spread by the golden ratio, which no period of positions matches.
fn spread(all: u64, count: u64) -> BTreeSet<u64> {
    /// 2⁶⁴ divided by the golden ratio.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    if count >= all {
        return (0..all).collect();
    }
    let at = |index: u64| (u128::from(index.wrapping_mul(STEP)) * u128::from(all)) >> 64;
    (1..).map(|index| at(index) as u64).take(count as usize).collect()
}

impl Totals<'_, '_> {
    fn follow(&mut self, launch: &Launch, effort: Effort) {
        let strata = strata(launch);
        let share = effort.threads / strata.len().max(1) as u64;
        for ranges in strata {
            let sizes = ranges.map(|(begin, end)| u64::from(end - begin));
            let groups: u64 = sizes.iter().product();
            let first = ranges.map(|(begin, _)| begin);
            let size = [0, 1, 2].map(|d| (launch.grid[d] - first[d] * launch.group[d]).min(launch.group[d]));
            // By their index in a full threadgroup.
            let simdgroups = simdgroups(launch.group, size);
            let all = groups * simdgroups.len() as u64;
            let followed = spread(all, (share / SIMDGROUP).max(1));
            self.is_complete &= followed.len() as u64 == all;
            let weight = all as f64 / followed.len() as f64;
            // The first and the last have the lowest and highest addresses, for the ranges of the launch.
            let ends = [0, all - 1].into_iter().filter(|end| !followed.contains(end)).map(|end| (end, 0.0));
            for (simdgroup, weight) in followed.iter().map(|simdgroup| (*simdgroup, weight)).chain(ends) {
                let (index, simdgroup) =
                    (simdgroup / simdgroups.len() as u64, simdgroup % simdgroups.len() as u64);
                let at = [index % sizes[0], index / sizes[0] % sizes[1], index / sizes[0] / sizes[1]];
                let group = [0, 1, 2].map(|d| first[d] + at[d] as u32);
                let path = |thread: &[u32; 3]| {
                    walk(self.kernel, launch, Position3 { group, thread: *thread }, effort.iterations.max(4))
                };
                let paths: Vec<Path> = simdgroups[simdgroup as usize].iter().map(path).collect();
                self.add(&paths, weight);
            }
        }
    }

    /// Adds the paths of a simdgroup's threads.
    fn add(&mut self, paths: &[Path], weight: f64) {
        for path in paths {
            self.is_estimate |= path.is_estimate;
            self.is_complete &= !path.is_sampled;
            for (sum, executions) in self.blocks.iter_mut().zip(&path.blocks) {
                *sum += executions * weight;
            }
            let loads = path.stores_first.iter().filter(|(_, stores)| !**stores);
            self.loaded.extend(loads.map(|(root, _)| root.clone()));
            for (site, address) in &path.ends {
                if let (Some((bytes, space, kind)), Some(root)) =
                    (self.sites.get(site).copied(), &address.root)
                    && space != Space::Threadgroup
                {
                    let (low, high) = (address.value, address.value + i128::from(bytes));
                    self.extend(root, kind, Extent { low, high, moved: 0.0 });
                }
            }
            for (index, executions) in &path.iterations {
                self.iterations[*index] += executions * weight;
            }
        }
        for (block, issued) in self.issued.iter_mut().enumerate() {
            // Lanes that execute a block more often keep the simdgroup in it.
            let most = paths.iter().map(|path| path.blocks[block]).fold(0.0, f64::max);
            *issued += most * weight * SIMDGROUP as f64;
        }
        for index in 0..self.vectors.len() {
            self.add_vector(index, paths, weight);
        }
        let sites: Vec<(Site, (u64, Space, Kind))> =
            self.sites.iter().map(|(site, known)| (*site, *known)).collect();
        for (site, (bytes, space, kind)) in sites {
            let lists: Vec<_> = paths.iter().filter_map(|path| path.accesses.get(&site)).collect();
            let rounds = lists.iter().map(|list| list.len()).max().unwrap_or(0);
            for round in 0..rounds {
                let lanes: Vec<_> = lists.iter().filter_map(|list| list.get(round)).collect();
                self.add_round(site, (bytes, space, kind), &lanes, weight);
            }
        }
    }

    /// Adds one execution of an access by lanes of a simdgroup.
    fn add_round(
        &mut self,
        site: Site,
        (bytes, space, kind): (u64, Space, Kind),
        lanes: &[&(f64, Option<Number>)],
        weight: f64,
    ) {
        let (known, unknown) = by_root(lanes.iter().copied());
        let of_lanes: f64 = lanes.iter().map(|(times, _)| times).sum();
        let most = lanes.iter().map(|(times, _)| *times).fold(0.0, f64::max);
        // Lanes that take a branch on data by halves: as if all took it half the times.
        let times = most * weight;
        let sum = self.sums.entry(site).or_default();
        sum.executions += of_lanes * weight;
        sum.simdgroups += times;
        sum.unknown += unknown as f64 * weight;
        self.is_estimate |= unknown > 0;
        let count = |segment: u64| -> u64 {
            let known: u64 = known.values().map(|offsets| traffic::segments(offsets, bytes, segment)).sum();
            known + unknown * bytes.div_ceil(segment)
        };
        match space {
            Space::Threadgroup => {
                let factor =
                    known.values().map(|offsets| traffic::bank_conflicts(offsets, bytes)).fold(1.0, f64::max);
                sum.conflicts += factor * times;
            }
            _ => {
                sum.sectors += count(SECTOR) as f64 * times;
                sum.lines += count(LINE) as f64 * times;
            }
        }
        if space == Space::Threadgroup {
            return;
        }
        for (root, offsets) in known {
            let low = offsets.iter().min().copied().unwrap_or(0);
            let high = offsets.iter().max().copied().unwrap_or(0) + i128::from(bytes);
            let moved = (traffic::segments(&offsets, bytes, SECTOR) * SECTOR) as f64 * times;
            self.extend(root, kind, Extent { low, high, moved });
        }
    }

    /// Adds to what is accessed of an argument. An atomic operation loads and stores.
    fn extend(&mut self, root: &Root, kind: Kind, by: Extent) {
        for one in [Kind::Load, Kind::Store].into_iter().filter(|one| kind == Kind::Atomic || kind == *one) {
            let extent = self.extents.entry((root.clone(), one)).or_insert(Extent { moved: 0.0, ..by });
            (extent.low, extent.high) = (extent.low.min(by.low), extent.high.max(by.high));
            extent.moved += by.moved;
        }
    }

    /// Adds the transactions that a vector of accesses has less than its accesses by themselves.
    fn add_vector(&mut self, index: usize, paths: &[Path], weight: f64) {
        let vector = &self.vectors[index];
        let bytes = vector.first().and_then(|site| self.sites.get(site)).map_or(0, |(bytes, ..)| *bytes);
        let lists: Vec<Vec<_>> = vector
            .iter()
            .map(|site| paths.iter().filter_map(|path| path.accesses.get(site)).collect())
            .collect();
        let Some(first) = lists.first() else { return };
        let rounds = first.iter().map(|list| list.len()).max().unwrap_or(0);
        let sectors = |lists: &[&Vec<(f64, Option<Number>)>], round: usize, bytes: u64| {
            let (known, _) = by_root(lists.iter().filter_map(|list| list.get(round)));
            known.values().map(|offsets| traffic::segments(offsets, bytes, SECTOR)).sum::<u64>()
        };
        for round in 0..rounds {
            let times = first.iter().filter_map(|list| list.get(round)).map(|(times, _)| *times);
            let alone: u64 = lists.iter().map(|lists| sectors(lists, round, bytes)).sum();
            let together = sectors(first, round, bytes * lists.len() as u64);
            self.merged += alone.saturating_sub(together) as f64 * times.fold(0.0, f64::max) * weight;
        }
    }

    fn finish(self, analysis: &Analysis, launch: &Launch) -> LaunchTotals {
        let mut operations = Operations::default();
        let (mut issued, mut executed) = (0.0, 0.0);
        for block in self.kernel.function.block_ids() {
            let at = block.0 as usize;
            let own = operations::of_block(self.kernel.function.block(block));
            operations.add(&own, self.blocks[at]);
            let cost = self.kernel.function.block(block).insts.len() as f64;
            issued += self.issued[at] * cost;
            executed += self.blocks[at] * cost;
        }
        let (mut used, mut moved, mut unknown) = (0.0, 0.0, 0.0);
        let mut accesses = Vec::new();
        for (index, access) in analysis.accesses.iter().enumerate() {
            let Some(sum) = self.sums.get(&access.site) else { continue };
            let is_threadgroup = access.space == Space::Threadgroup;
            let bytes = sum.executions * access.bytes as f64;
            if !is_threadgroup {
                used += bytes;
                moved += sum.sectors * SECTOR as f64;
                unknown += sum.unknown * access.bytes as f64;
            }
            accesses.push(SiteTotals {
                access: index,
                executions: sum.executions,
                bytes,
                simdgroup_executions: sum.simdgroups,
                sectors: sum.sectors,
                lines: sum.lines,
                bank_conflicts: (is_threadgroup && sum.simdgroups > 0.0)
                    .then(|| sum.conflicts / sum.simdgroups),
                unknown: if sum.executions > 0.0 { (sum.unknown / sum.executions).min(1.0) } else { 0.0 },
            });
        }
        // What was stored before is in the cache.
        let moves = |(root, kind): &(Root, Kind)| *kind == Kind::Store || self.loaded.contains(root);
        let extents = self.extents.iter().filter(|(key, _)| moves(key));
        let footprint = extents.map(|(_, extent)| extent.bytes()).sum::<f64>();
        let entries = |index: usize| {
            let l = &self.kernel.loops.all[index];
            let blocks = self.kernel.function.block_ids().filter(|block| !l.contains(*block));
            let into = blocks
                .filter(|block| self.kernel.function.block(*block).term.successors().contains(&l.header));
            into.map(|block| self.blocks[block.0 as usize]).sum::<f64>()
        };
        let mean = |index: usize| {
            let entries = entries(index);
            if entries > 0.0 { self.iterations[index] / entries } else { 0.0 }
        };
        LaunchTotals {
            grid: launch.grid,
            group: launch.group,
            accesses,
            operations,
            used_bytes: used,
            moved_bytes: moved - self.merged * SECTOR as f64,
            footprint_bytes: footprint + unknown,
            idle_lanes: if issued > 0.0 { (1.0 - executed / issued).max(0.0) } else { 0.0 },
            iterations: (0..self.iterations.len()).map(mean).collect(),
            is_complete: self.is_complete,
            is_estimate: self.is_estimate,
        }
    }
}

/// The offsets that lanes access, by argument, and the number of unknown ones.
fn by_root<'p>(
    lanes: impl Iterator<Item = &'p (f64, Option<Number>)>,
) -> (BTreeMap<&'p Root, Vec<i128>>, u64) {
    let (mut known, mut unknown) = (BTreeMap::<_, Vec<_>>::new(), 0);
    for (_, address) in lanes {
        match address.as_ref().and_then(|address| Some((address.root.as_ref()?, address.value))) {
            Some((root, offset)) => known.entry(root).or_default().push(offset),
            None => unknown += 1,
        }
    }
    (known, unknown)
}

/// Loads and stores of device memory in one block that are side by side, as many as an aligned vector of 8 or 16 bytes has.
fn vectors(accesses: &[Access]) -> Vec<Vec<Site>> {
    type Group<'a> = (&'a str, &'a str, Kind, u64, BlockId);
    let mut groups: BTreeMap<Group<'_>, BTreeMap<i128, &Access>> = BTreeMap::new();
    for access in accesses.iter().filter(|a| a.kind != Kind::Atomic && a.space != Space::Threadgroup) {
        if let (Some((formula, constant)), Some(object)) = (&access.place, &access.object) {
            let group = (object.as_str(), formula.as_str(), access.kind, access.bytes, access.site.0);
            groups.entry(group).or_default().entry(*constant).or_insert(access);
        }
    }
    let mut all = Vec::new();
    for ((_, _, _, bytes, _), mut group) in groups {
        while let Some((at, first)) = group.pop_first() {
            let sizes = [16, 8].into_iter().filter(|size| *size > bytes && first.align >= *size);
            let vector = sizes.map(|size| (1..size / bytes).map(|n| at + i128::from(n * bytes)));
            let Some(others) =
                vector.into_iter().find(|others| others.clone().all(|at| group.contains_key(&at)))
            else {
                continue;
            };
            let others = others.filter_map(|at| group.remove(&at));
            all.push(std::iter::once(first).chain(others).map(|access| access.site).collect());
        }
    }
    all
}

/// The threads of each simdgroup of a threadgroup of `size` threads, by their index in a full threadgroup.
fn simdgroups(full: [u32; 3], size: [u32; 3]) -> Vec<Vec<[u32; 3]>> {
    let mut all: BTreeMap<u64, Vec<[u32; 3]>> = BTreeMap::new();
    for z in 0..size[2] {
        for y in 0..size[1] {
            for x in 0..size[0] {
                let linear =
                    u64::from(x) + u64::from(full[0]) * (u64::from(y) + u64::from(full[1]) * u64::from(z));
                all.entry(linear / SIMDGROUP).or_default().push([x, y, z]);
            }
        }
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strata_cover_the_grid() {
        for grid in [[100, 1, 1], [64, 3, 1], [65, 9, 5], [0, 1, 1]] {
            let launch = Launch { grid, group: [32, 2, 2], ..Launch::default() };
            let volume =
                |ranges: &[(u32, u32); 3]| ranges.iter().map(|(a, b)| u64::from(b - a)).product::<u64>();
            let groups: u64 =
                [0, 1, 2].iter().map(|d| u64::from(grid[*d].div_ceil(launch.group[*d]))).product();
            assert_eq!(strata(&launch).iter().map(volume).sum::<u64>(), groups);
        }
    }

    #[test]
    fn spread_numbers_are_distinct_and_below_the_end() {
        for (all, count) in [(10, 3), (10, 10), (10, 99), (1, 1), (1_000_000, 7)] {
            let numbers = spread(all, count);
            assert!(numbers.len() as u64 <= count.min(all) && !numbers.is_empty());
            assert!(count < all || numbers.len() as u64 == all);
            assert!(numbers.iter().all(|n| *n < all));
        }
    }
}
