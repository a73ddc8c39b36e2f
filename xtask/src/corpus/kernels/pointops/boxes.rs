//! A tree of boxes over points in bricks of 128, and searches in it with a stack.

use super::super::case::{Case, Near, guarded};

use super::{CORPUS, Cloud, long, longs, nearest, within};

const FILE: &str = "spatial_bvh.metal";
const BRICK: usize = 128;
const POINTS: usize = 10_000;
/// A power of two; the leaves of two threadgroups.
const LEAVES: usize = 128;

/// Lower and upper corners of each node, and the first of its points. An empty node has none.
struct Tree {
    bounds: Vec<f32>,
    first: Vec<u32>,
}

impl Tree {
    fn new(cloud: &Cloud, order: &[usize]) -> Self {
        let mut tree = Self { bounds: vec![0.0; 2 * LEAVES * 6], first: vec![0; 2 * LEAVES] };
        for node in (1..2 * LEAVES).rev() {
            let depth = node.ilog2();
            let span = LEAVES >> depth;
            let start = ((node - (1 << depth)) * span * BRICK).min(POINTS);
            let own = &order[start..(start + span * BRICK).min(POINTS)];
            for axis in 0..3 {
                let values = || own.iter().map(|point| cloud.row(*point)[axis]);
                tree.bounds[node * 6 + axis] = values().fold(f32::INFINITY, f32::min);
                tree.bounds[node * 6 + 3 + axis] = values().fold(f32::NEG_INFINITY, f32::max);
            }
            tree.first[node] = own.iter().min().map_or(u32::MAX, |point| *point as u32);
        }
        tree
    }

    /// Nodes of a range, as an output that has only them.
    fn only(&self, range: std::ops::Range<usize>) -> (Vec<Option<f32>>, Vec<Option<u32>>) {
        let bounds = self.bounds.iter().enumerate().map(|(e, x)| range.contains(&(e / 6)).then_some(*x));
        let first = self.first.iter().enumerate().map(|(node, x)| range.contains(&node).then_some(*x));
        (bounds.collect(), first.collect())
    }
}

/// Squares of the distances and indices of what is found near a query.
type Search<'a> = dyn Fn(&[f32]) -> Vec<(f32, usize)> + 'a;

pub fn cases() -> Vec<Case> {
    let cloud = Cloud::new(POINTS, 3, 167);
    let mut order: Vec<usize> = (0..POINTS).collect();
    // Nearby points are neighbors in the order.
    order.sort_by_key(|point| [0, 1, 2].map(|axis| cloud.row(*point)[axis] as i32 / 6));
    let tree = Tree::new(&cloud, &order);
    let case = |kernel: &str| Case::new(CORPUS, FILE, kernel);
    let (bounds, first) = tree.only(2..2 * LEAVES);
    let build = long(
        case("bvh_build_micro_f32").input(&cloud.data).input(&longs(&order)).output(&bounds).output(&first),
        &[POINTS],
    )
    .value([LEAVES as u32])
    .groups(2, 64);
    let (bounds, first) = tree.only(1..2);
    let mut root: (Vec<f32>, Vec<u32>) = (guarded(&tree.bounds), guarded(&tree.first));
    root.0[6..12].fill(0.0);
    root.1[1] = 0;
    let join = case("bvh_build_macro_f32")
        .updated(&root.0, &bounds)
        .updated(&root.1, &first)
        .value([2_u32])
        .groups(1, 64);
    let queries = 40;
    let mut query = Cloud::new(queries, 3, 173);
    query.spoil(11, f32::NAN);
    let count = 20;
    let radius = 3.0_f32;
    let searched = |kernel: &str, empty: f32, find: &Search| {
        let (mut distances, mut indices) = (Vec::new(), Vec::new());
        for row in 0..queries {
            let found = find(query.row(row));
            distances.extend(found.iter().map(|(distance, _)| *distance));
            indices.extend(found.iter().map(|(_, index)| *index as i64));
            distances.resize((row + 1) * count, empty);
            indices.resize((row + 1) * count, -1);
        }
        // The numbers of visited nodes and points and of pruned nodes are not part of the definition. No prune is wrong, and no stack is full.
        let anything: Near = (0.0, 1e6);
        let stats = [anything, anything, anything, (0.0, 0.0), (0.0, 0.0)];
        let case = case(kernel)
            .input(&query.data)
            .input(&cloud.data)
            .input(&longs(&order))
            .input(&tree.bounds)
            .input(&tree.first)
            .full_output(distances)
            .full_output(indices)
            .near::<u32>(stats.repeat(queries), "exact, apart from statistics");
        let case = long(long(case, &[queries, POINTS]).value([LEAVES as u32]), &[count]);
        let case =
            if kernel.contains("radius") { case.value([radius]).value([radius * radius]) } else { case };
        case.value([1_u32]).threads(64, 32)
    };
    let knn = searched("bvh_knn_f32", f32::INFINITY, &|query| nearest(query, &cloud, 0..POINTS, count));
    let ball = searched("bvh_radius_f32", 0.0, &|query| within(query, &cloud, 0..POINTS, count, radius));
    vec![build, join, knn, ball]
}
