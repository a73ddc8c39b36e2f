//! Sampling of the furthest points, and pairs of neighbors in a graph.

use super::super::case::{Case, guarded};
use super::super::element::{Element, Sequence};
use super::{CORPUS, Cloud, long, longs, squared};

/// Distances to the nearest sample, and the furthest point: the first of those that are equally far.
struct Sampler<'a> {
    cloud: &'a Cloud,
    start: usize,
    distances: Vec<Option<f32>>,
    skips_origin: bool,
}

impl<'a> Sampler<'a> {
    fn new(cloud: &'a Cloud, range: std::ops::Range<usize>, skips_origin: bool) -> Self {
        Self { cloud, start: range.start, distances: vec![None; range.len()], skips_origin }
    }

    fn add(&mut self, sample: usize) -> usize {
        let center = self.cloud.row(self.start + sample);
        for (index, distance) in self.distances.iter_mut().enumerate() {
            let point = self.cloud.row(self.start + index);
            if self.skips_origin && squared(point, &[0.0; 3]) < 1e-3 {
                continue;
            }
            let own = squared(point, center);
            *distance = Some(distance.map_or(own, |old| old.min(own)));
        }
        let known =
            self.distances.iter().enumerate().filter_map(|(index, distance)| Some(((*distance)?, index)));
        known.reduce(|a, b| if b.0 > a.0 { b } else { a }).map_or(0, |(_, index)| index)
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = vec![dense(), flat()];
    cases.extend(in_parts());
    cases.push(pairs());
    cases
}

fn dense() -> Case {
    let (batches, points, samples, start) = (2, 700, 9, 5);
    let mut cloud = Cloud::new(batches * points, 3, 89);
    for index in [3, 90, 800] {
        cloud.data[index * 3..][..3].fill(0.0);
    }
    let (mut distances, mut chosen) = (Vec::new(), Vec::new());
    for batch in 0..batches {
        let mut sampler = Sampler::new(&cloud, batch * points..(batch + 1) * points, true);
        let mut sample = start;
        for _ in 0..samples {
            chosen.push(sample as i64);
            sample = sampler.add(sample);
        }
        distances.extend(sampler.distances);
    }
    let case = Case::new(CORPUS, "fps.metal", "furthest_point_sample")
        .input(&cloud.data)
        .output(&distances)
        .full_output(chosen);
    long(case, &[points, samples, start, 1]).groups((1, batches), 256)
}

fn flat() -> Case {
    let (ranges, outputs, starts) = ([0, 90, 90, 300], [0, 7, 7, 20], [4, 0, 50]);
    let cloud = Cloud::new(300, 3, 97);
    let (mut distances, mut chosen) = (vec![None; 300], Vec::new());
    for batch in 0..3 {
        let range = ranges[batch]..ranges[batch + 1];
        let mut sampler = Sampler::new(&cloud, range.clone(), false);
        let mut sample = starts[batch];
        for _ in outputs[batch]..outputs[batch + 1] {
            chosen.push((range.start + sample) as i64);
            sample = sampler.add(sample);
        }
        distances[range].copy_from_slice(&sampler.distances);
    }
    Case::new(CORPUS, "fps_flat.metal", "fps_flat")
        .input(&cloud.data)
        .input(&longs(&ranges))
        .input(&longs(&outputs))
        .input(&longs(&starts))
        .output(&distances)
        .full_output(chosen)
        .groups((1, 3), 64)
}

/// One step by several threadgroups.
fn in_parts() -> [Case; 2] {
    let (points, chunk, step) = (500, 150, 2);
    let cloud = Cloud::new(points, 3, 101);
    let chosen = [7, 123, 400, 0];
    let mut sampler = Sampler::new(&cloud, 0..points, false);
    sampler.add(chosen[0]);
    sampler.add(chosen[1]);
    let before: Vec<f32> = sampler.distances.iter().map(|distance| distance.unwrap_or_default()).collect();
    sampler.add(chosen[2]);
    let after: Vec<f32> = sampler.distances.iter().map(|distance| distance.unwrap_or_default()).collect();
    let parts: Vec<(f32, u32)> = after
        .chunks(chunk)
        .enumerate()
        .map(|(part, distances)| {
            let all = distances
                .iter()
                .enumerate()
                .map(|(index, distance)| (*distance, (part * chunk + index) as u32));
            all.reduce(|a, b| if b.0 > a.0 { b } else { a }).unwrap_or_default()
        })
        .collect();
    let update = Case::new(CORPUS, "fps_multigroup.metal", "fps_update_partials")
        .input(&cloud.data)
        .updated(&guarded(&before), &after.iter().map(|x| Some(*x)).collect::<Vec<_>>())
        .input(&longs(&chosen))
        .full_output(parts.iter().map(|(distance, _)| *distance))
        .full_output(parts.iter().map(|(_, index)| *index));
    // Many parts, whose distances are often equal.
    let count = 130;
    let distances: Vec<f32> = Sequence(103).any::<u8>(count).iter().map(|x| (x % 7).into()).collect();
    let indices: Vec<u32> = Sequence(107).shuffled(count).iter().map(|index| *index as u32).collect();
    let best = distances.iter().zip(&indices).reduce(|a, b| {
        let is_better = b.0 > a.0 || b.0 == a.0 && b.1 < a.1;
        if is_better { b } else { a }
    });
    let mut next = vec![None; step + 2];
    next[step + 1] = best.map(|(_, index)| i64::from(*index));
    let reduce = Case::new(CORPUS, "fps_multigroup.metal", "fps_reduce_partials")
        .input(&distances)
        .input(&indices)
        .output(&next);
    [
        long(update, &[points, step, chunk, 0]).groups(points.div_ceil(chunk), 64),
        long(reduce, &[count, step]).groups(1, 96),
    ]
}

/// Each node is matched with its heaviest neighbor that is free, in a given order.
fn pairs() -> Case {
    let nodes = 40;
    let mut starts = vec![0];
    let (mut neighbors, mut weights) = (Vec::new(), Vec::new());
    let mut sequence = Sequence(109);
    for node in 0..nodes {
        for other in sequence.shuffled(nodes).into_iter().take(node % 6).filter(|other| *other != node) {
            neighbors.push(other);
            weights.push(sequence.between::<f32>(1, 0.0, 1.0)[0]);
        }
        starts.push(neighbors.len());
    }
    let order = sequence.shuffled(nodes);
    let mut labels: Vec<Option<i64>> = vec![None; nodes];
    for node in &order {
        if labels[*node].is_some() {
            continue;
        }
        let free = (starts[*node]..starts[node + 1]).filter(|edge| labels[neighbors[*edge]].is_none());
        let heaviest = free.max_by(|a, b| weights[*a].value().total_cmp(&weights[*b].value()));
        let partner = heaviest.map_or(*node, |edge| neighbors[edge]);
        let label = (*node).min(partner) as i64;
        (labels[*node], labels[partner]) = (Some(label), Some(label));
    }
    let case = Case::new(CORPUS, "graclus.metal", "graclus_greedy")
        .input(&longs(&starts))
        .input(&longs(&neighbors))
        .input(&weights)
        .input(&longs(&order))
        .output(&labels);
    long(case, &[nodes]).value([1_i32]).threads(32, 32)
}
