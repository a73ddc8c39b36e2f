//! Reconvergence order of diverged threads.
//!
//! If threads of a simdgroup wait at different operations, those at the first one in program order continue, so that diverged
//! threads reconverge at joins. A position is compared as a list: for each enclosing loop, outermost first, the loop's position
//! and the number of its iteration; then the block's position and the instruction. Blocks are ordered in reverse postorder,
//! the first target of a branch before the second.

use fixedbitset::FixedBitSet;

use elinvar_ir::{BlockId, Dominators, Function, PostDominators, predecessors};

/// Properties of a function that do not change.
#[derive(Debug)]
pub(crate) struct Order {
    /// A block's index in reverse postorder.
    place: Vec<u32>,
    /// For each block the headers of the loops around it, outermost first.
    loops: Vec<Vec<BlockId>>,
    /// For each block those that it leads to in the same iteration of the loops around it, or where their headers leave them.
    onward: Vec<FixedBitSet>,
    post: PostDominators,
}

impl Order {
    pub(crate) fn new(function: &Function) -> Order {
        let place = places(function);
        let dominators = Dominators::compute(function);
        let before = predecessors(function);
        let mut loops = vec![Vec::new(); function.blocks.len()];
        let mut headers: Vec<BlockId> = function.block_ids().collect();
        headers.sort_by_key(|h| place[h.0 as usize]);
        for header in headers {
            let latches = before[header.0 as usize]
                .iter()
                .filter(|from| dominators.is_reachable(**from) && dominators.dominates(header, **from));
            let mut todo: Vec<BlockId> = latches.copied().collect();
            if todo.is_empty() {
                continue;
            }
            let mut body = vec![false; function.blocks.len()];
            body[header.0 as usize] = true;
            while let Some(block) = todo.pop() {
                if !std::mem::replace(&mut body[block.0 as usize], true) {
                    todo.extend(before[block.0 as usize].iter().filter(|b| dominators.is_reachable(**b)));
                }
            }
            for (block, _) in body.iter().enumerate().filter(|(_, inside)| **inside) {
                loops[block].push(header);
            }
        }
        let onward = onward(function, &place, &loops);
        Order { place, loops, onward, post: PostDominators::compute(function) }
    }

    /// Records that a thread branches from one block to another.
    pub(crate) fn count(&self, rounds: &mut [u32], from: BlockId, to: BlockId) {
        if self.loops[to.0 as usize].last() == Some(&to) {
            let again = self.loops[from.0 as usize].contains(&to);
            let count = &mut rounds[to.0 as usize];
            *count = if again { *count + 1 } else { 0 };
        }
    }

    /// Whether a thread at one place comes to another one in the same iteration of the loops around it, or where these end, or on all
    /// paths, or is in an earlier iteration.
    pub(crate) fn leads(&self, from: (&[u32], BlockId), to: (&[u32], BlockId)) -> bool {
        let shared = self.loops[from.1.0 as usize].iter().zip(&self.loops[to.1.0 as usize]);
        let mut rounds = shared.take_while(|(a, b)| a == b).map(|(header, _)| header.0 as usize);
        rounds.any(|header| from.0[header] != to.0[header])
            || self.onward[from.1.0 as usize].contains(to.1.0 as usize)
            || self.post.post_dominates(to.1, from.1)
    }

    /// Appends the sort key of an instruction's position.
    pub(crate) fn key(&self, rounds: &[u32], block: BlockId, inst: usize, out: &mut Vec<(u32, u32)>) {
        let place = |b: &BlockId| self.place[b.0 as usize];
        out.extend(self.loops[block.0 as usize].iter().map(|h| (place(h), rounds[h.0 as usize])));
        out.push((place(&block), inst as u32));
    }
}

fn onward(function: &Function, place: &[u32], loops: &[Vec<BlockId>]) -> Vec<FixedBitSet> {
    let count = function.blocks.len();
    let mut onward = vec![FixedBitSet::with_capacity(count); count];
    let mut blocks: Vec<BlockId> = function.block_ids().collect();
    blocks.sort_by_key(|block| std::cmp::Reverse(place[block.0 as usize]));
    let successors = |block: BlockId| function.block(block).term.successors();
    for block in blocks {
        let around = &loops[block.0 as usize];
        let is_outside = |header: BlockId, to: &BlockId| !loops[to.0 as usize].contains(&header);
        // From the end of a loop also to where its header leaves it.
        let targets = successors(block).into_iter().flat_map(|to| match around.contains(&to) {
            true => successors(to).into_iter().filter(|exit| is_outside(to, exit)).collect(),
            false => vec![to],
        });
        let mut all = FixedBitSet::with_capacity(count);
        for to in targets {
            all.insert(to.0 as usize);
            all.union_with(&onward[to.0 as usize]);
        }
        onward[block.0 as usize] = all;
    }
    onward
}

fn places(function: &Function) -> Vec<u32> {
    let count = function.blocks.len();
    let mut seen = vec![false; count];
    let mut place = vec![u32::MAX; count];
    let mut next = count as u32;
    // In reverse, so that the first successor, which an `if` enters, comes first.
    let targets = |block: BlockId| {
        let mut to = function.block(block).term.successors();
        to.reverse();
        to
    };
    let mut stack = vec![(BlockId(0), targets(BlockId(0)), 0)];
    seen[0] = true;
    while let Some((block, successors, at)) = stack.last_mut() {
        if let Some(to) = successors.get(*at).copied() {
            *at += 1;
            if !std::mem::replace(&mut seen[to.0 as usize], true) {
                stack.push((to, targets(to), 0));
            }
        } else {
            next -= 1;
            place[block.0 as usize] = next;
            stack.pop();
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use elinvar_ir::Module;

    const LOOP: &str = "define void @f(i1 %c) {
entry:
  br label %head
head:
  br i1 %c, label %body, label %exit
body:
  br label %head
exit:
  ret void
}
";

    #[test]
    fn a_loop_goes_before_what_follows_it_and_its_rounds_in_order() {
        let module = Module::parse(LOOP).unwrap();
        let order = Order::new(&module.functions[0]);
        let key = |path: &[u32]| {
            let mut rounds = vec![0; 4];
            for step in path.windows(2) {
                order.count(&mut rounds, BlockId(step[0]), BlockId(step[1]));
            }
            let mut key = Vec::new();
            order.key(&rounds, BlockId(*path.last().unwrap()), 0, &mut key);
            key
        };
        assert!(key(&[0, 1, 2]) < key(&[0, 1, 2, 1, 2]));
        assert!(key(&[0, 1, 2, 1, 2]) < key(&[0, 1, 3]));
        assert!(key(&[0]) < key(&[0, 1]));
        assert_eq!(key(&[0, 1, 2, 1, 3]), key(&[0, 1, 3]));
    }
}
