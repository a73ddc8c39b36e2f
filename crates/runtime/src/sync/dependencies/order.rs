//! Order maintenance: a list with constant-time comparison of positions.
//!
//! Members have increasing labels with gaps; when a gap is exhausted, all labels are reassigned (Dietz and Sleator, "Two
//! algorithms for maintaining order in a list", 1987).

/// No member.
const NONE: usize = usize::MAX;
/// Label distance at the ends of the list.
const GAP: u64 = 1 << 32;

#[derive(Clone, Copy)]
struct Link {
    label: u64,
    before: usize,
    after: usize,
}

/// The list. Members are small numbers.
pub(super) struct Order {
    links: Vec<Link>,
    first: usize,
    last: usize,
    len: u64,
}

impl Order {
    pub(super) const fn new() -> Self {
        Self { links: Vec::new(), first: NONE, last: NONE, len: 0 }
    }

    /// Whether `a` comes before `b`.
    pub(super) fn precedes(&self, a: usize, b: usize) -> bool {
        self.links[a].label < self.links[b].label
    }

    /// A number that increases along the list; valid until the next change.
    pub(super) fn label(&self, member: usize) -> u64 {
        self.links[member].label
    }

    pub(super) fn push_first(&mut self, member: usize) {
        self.insert(member, NONE, self.first);
    }

    pub(super) fn push_last(&mut self, member: usize) {
        self.insert(member, self.last, NONE);
    }

    pub(super) fn insert_before(&mut self, at: usize, member: usize) {
        self.insert(member, self.links[at].before, at);
    }

    pub(super) fn insert_after(&mut self, at: usize, member: usize) {
        self.insert(member, at, self.links[at].after);
    }

    fn insert(&mut self, member: usize, before: usize, after: usize) {
        let unused = Link { label: 0, before: NONE, after: NONE };
        self.links.resize(self.links.len().max(member + 1), unused);
        self.len += 1;
        let label = self.between(before, after).unwrap_or_else(|| {
            self.relabel();
            self.between(before, after).unwrap_or(u64::MAX / 2)
        });
        self.links[member] = Link { label, before, after };
        self.join(before, member);
        self.join(member, after);
    }

    fn between(&self, before: usize, after: usize) -> Option<u64> {
        match (self.links.get(before), self.links.get(after)) {
            (None, None) => Some(u64::MAX / 2),
            (Some(before), None) => before.label.checked_add(GAP),
            (None, Some(after)) => after.label.checked_sub(GAP),
            (Some(before), Some(after)) => {
                let half = (after.label - before.label) / 2;
                (half > 0).then(|| before.label + half)
            }
        }
    }

    /// Reassigns labels at equal distances, in the middle half of the range.
    fn relabel(&mut self) {
        let step = (u64::MAX / 2) / (self.len + 1);
        let (mut at, mut label) = (self.first, u64::MAX / 4);
        while at != NONE {
            label += step;
            self.links[at].label = label;
            at = self.links[at].after;
        }
    }

    pub(super) fn remove(&mut self, member: usize) {
        let Link { before, after, .. } = self.links[member];
        self.join(before, after);
        self.len -= 1;
    }

    /// Links two members, or ends.
    fn join(&mut self, before: usize, after: usize) {
        match before {
            NONE => self.first = after,
            _ => self.links[before].after = after,
        }
        match after {
            NONE => self.last = before,
            _ => self.links[after].before = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_the_list_also_when_gaps_are_used_up() {
        let (mut order, mut list) = (Order::new(), Vec::new());
        let mut random = 1_u64;
        for member in 0..3000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Mostly at one place, so that its gap is used up.
            let at =
                if random >> 62 == 0 { (random >> 33) as usize % (list.len() + 1) } else { list.len() / 2 };
            match (list.get(at).copied(), at.checked_sub(1)) {
                (Some(after), _) if member % 2 == 0 => order.insert_before(after, member),
                (_, Some(before)) => order.insert_after(list[before], member),
                (Some(_), None) => order.push_first(member),
                (None, None) => order.push_last(member),
            }
            list.insert(at, member);
            if member % 7 == 6 {
                order.remove(list.remove(at / 2));
            }
        }
        assert!(list.windows(2).all(|pair| order.precedes(pair[0], pair[1])));
    }
}
