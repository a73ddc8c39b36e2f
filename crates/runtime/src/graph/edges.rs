//! What comes before what: from the use of memory, and along paths.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

use super::step::Touch;

/// An earlier use of an allocation that later ones may conflict with.
struct Earlier {
    range: Range<u64>,
    node: usize,
    writes: bool,
}

/// For each node of a list the earlier ones that it must come after, because one of the two writes what the other uses. What
/// follows from others may be left out.
pub(super) fn by_memory<'a>(nodes: impl Iterator<Item = &'a [Touch]>) -> Vec<Vec<usize>> {
    let mut used: HashMap<usize, Vec<Earlier>> = HashMap::new();
    let mut all = Vec::new();
    for (node, touches) in nodes.enumerate() {
        let mut before = Vec::new();
        let touches = touches.iter().filter(|touch| !touch.range.is_empty());
        for touch in touches.clone() {
            let earlier = used.entry(touch.key()).or_default();
            let conflicts = |e: &&Earlier| {
                (e.writes || touch.writes())
                    && e.range.start < touch.range.end
                    && touch.range.start < e.range.end
            };
            before.extend(earlier.iter().filter(conflicts).map(|e| e.node));
        }
        for touch in touches {
            let earlier = used.entry(touch.key()).or_default();
            if touch.writes() {
                // Who conflicts with these conflicts with this node, which comes after them.
                let within =
                    |e: &Earlier| touch.range.start <= e.range.start && e.range.end <= touch.range.end;
                earlier.retain(|e| !within(e));
            }
            earlier.push(Earlier { range: touch.range.clone(), node, writes: touch.writes() });
        }
        before.retain(|earlier| *earlier != node);
        before.sort_unstable();
        before.dedup();
        all.push(before);
    }
    all
}

/// The nodes in an order in which each comes after those before it, otherwise as they are numbered.
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

/// A way along edges from `first` to `last`, both included.
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
