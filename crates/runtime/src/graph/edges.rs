//! Dependency edges, from memory accesses; topological order and paths.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

use super::node::MemoryAccess;

/// An access to an allocation with which later ones may conflict.
struct Earlier {
    range: Range<u64>,
    node: usize,
    writes: bool,
}

/// For each node of a list, the earlier nodes on which it depends, since one of the two writes memory that the other accesses.
/// Transitive dependencies may be omitted.
pub(super) fn by_memory<'a>(nodes: impl Iterator<Item = &'a [MemoryAccess]>) -> Vec<Vec<usize>> {
    let mut used: HashMap<usize, Vec<Earlier>> = HashMap::new();
    let mut all = Vec::new();
    for (node, accesses) in nodes.enumerate() {
        let mut before = Vec::new();
        let accesses = accesses.iter().filter(|access| !access.range.is_empty());
        for access in accesses.clone() {
            let earlier = used.entry(access.key()).or_default();
            let conflicts = |e: &&Earlier| {
                (e.writes || access.writes())
                    && e.range.start < access.range.end
                    && access.range.start < e.range.end
            };
            before.extend(earlier.iter().filter(conflicts).map(|e| e.node));
        }
        for access in accesses {
            let earlier = used.entry(access.key()).or_default();
            if access.writes() {
                // Accesses that conflict with these conflict with this node, which depends on them.
                let within =
                    |e: &Earlier| access.range.start <= e.range.start && e.range.end <= access.range.end;
                earlier.retain(|e| !within(e));
            }
            earlier.push(Earlier { range: access.range.clone(), node, writes: access.writes() });
        }
        before.retain(|earlier| *earlier != node);
        before.sort_unstable();
        before.dedup();
        all.push(before);
    }
    all
}

/// The topological order of the nodes, ties broken by number.
pub(super) fn order(before: &[Vec<usize>]) -> Vec<usize> {
    let mut after = vec![Vec::new(); before.len()];
    let mut left: Vec<usize> = before.iter().map(Vec::len).collect();
    for (node, list) in before.iter().enumerate() {
        list.iter().for_each(|earlier| after[*earlier].push(node));
    }
    let free = (0..before.len()).filter(|node| left[*node] == 0);
    let mut free: BinaryHeap<_> = free.map(Reverse).collect();
    let mut order = Vec::with_capacity(before.len());
    while let Some(Reverse(node)) = free.pop() {
        order.push(node);
        for later in &after[node] {
            left[*later] -= 1;
            if left[*later] == 0 {
                free.push(Reverse(*later));
            }
        }
    }
    order
}

/// A path along edges from `first` to `last`, both included.
pub(super) fn path(before: &[Vec<usize>], first: usize, last: usize) -> Option<Vec<usize>> {
    let mut next = vec![None; before.len()];
    let mut open = vec![last];
    while let Some(node) = open.pop() {
        if node == first {
            let way =
                std::iter::successors(Some(first), |node| if *node == last { None } else { next[*node] });
            return Some(way.collect());
        }
        for earlier in &before[node] {
            if *earlier != last && next[*earlier].is_none() {
                next[*earlier] = Some(node);
                open.push(*earlier);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_keeps_to_the_edges_and_the_numbers() {
        let before = vec![vec![3], vec![], vec![0, 1], vec![]];
        assert_eq!(order(&before), [1, 3, 0, 2]);
    }

    #[test]
    fn a_path_goes_along_edges() {
        let before = vec![vec![], vec![0], vec![0, 1], vec![2], vec![]];
        let way = path(&before, 0, 3).unwrap();
        assert_eq!((way[0], way[way.len() - 1]), (0, 3));
        assert!(way.windows(2).all(|pair| before[pair[1]].contains(&pair[0])), "{way:?}");
        assert_eq!(path(&before, 3, 0), None);
        assert_eq!(path(&before, 4, 3), None);
        assert_eq!(path(&before, 2, 2), Some(vec![2]));
    }
}
