//! The threadgroup sizes that `Kernel::tune` finds and `Kernel::suggest` expects, against all sizes and against 256 threads, for one launch at a time.
//!
//! What a launch writes has to be the same in all sizes, byte by byte. All sizes are measured first. Then the fastest, the tuned, the suggested and the
//! usual size are measured again in turns, so that disturbances affect all of them, and their shortest times are compared.

mod launch;

use elinvar::{Kernel, Result, Suggestion};
use serde_json::{Value, json};

pub use launch::{Given, Launch};

/// Rounds over all sizes, and of those that are compared.
const FIRST_ROUNDS: usize = 3;
const ROUNDS: usize = 25;
/// Target duration of a measurement, and most launches of one submission.
const ROUND_NS: u64 = 3_000_000;
const MOST_LAUNCHES: u64 = 4096;
const MOST_THREADS: usize = 1024;

/// Threads along x, y and z.
pub type Size = [usize; 3];

/// A launch, measured.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name for tables.
    pub name: String,
    /// Threads of the grid.
    pub threads: Size,
    /// Number of sizes that were measured.
    pub sizes: usize,
    /// 256 threads in the shape of the launch, with the duration of a launch in nanoseconds, as the next ones.
    pub usual: (Size, u64),
    /// The size of `Kernel::suggest`.
    pub suggested: (Size, u64),
    /// The size that `Kernel::tune` finds.
    pub tuned: (Size, u64),
    /// The fastest size of all.
    pub best: (Size, u64),
}

/// Geometric means over rows.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// Of [`Row::of_suggestion`].
    pub of_suggestion: f64,
    /// Of [`Row::gain`].
    pub gain: f64,
    /// Of [`Row::of_best`].
    pub of_best: f64,
}

impl Means {
    /// Of these rows; 1 if there are none.
    pub fn of(rows: &[Row]) -> Self {
        let mean = |of: fn(&Row) -> f64| {
            (rows.iter().map(|row| of(row).ln()).sum::<f64>() / rows.len().max(1) as f64).exp()
        };
        Self { of_suggestion: mean(Row::of_suggestion), gain: mean(Row::gain), of_best: mean(Row::of_best) }
    }
}

impl Row {
    /// Titles of [`Row::cells`].
    pub const HEAD: [&str; 10] = [
        "kernel",
        "threads",
        "sizes",
        "256",
        "suggested",
        "tuned",
        "best",
        "256/suggested",
        "256/tuned",
        "tuned/best",
    ];

    /// Measures a launch. The inner error says which size writes something else than `usual` does, or that nothing is written.
    ///
    /// # Errors
    /// Of the runtime.
    pub fn measure(
        name: impl Into<String>,
        launch: &mut Launch,
        usual: Size,
    ) -> Result<std::result::Result<Self, String>> {
        let threads = launch.threads;
        let suggested = sides(&launch.kernel.suggest(threads)?);
        let sizes = all_sizes(threads, &launch.kernel);
        let mut known = sizes.clone();
        known.extend([usual, suggested]);
        launch.prepare(&known)?;
        if let Some(why) = launch.difference(usual, &known)? {
            return Ok(Err(why));
        }
        let once = launch.run(usual, 1)?.min(launch.run(usual, 1)?);
        let count = (ROUND_NS / once.max(1)).clamp(1, MOST_LAUNCHES);
        let mut times = vec![u64::MAX; sizes.len()];
        for _ in 0..FIRST_ROUNDS {
            for (size, time) in sizes.iter().zip(&mut times) {
                *time = (launch.run_afresh(*size, count)? / count).min(*time);
            }
        }
        let fastest =
            times.iter().zip(&sizes).min_by_key(|(time, _)| **time).map_or(suggested, |(_, size)| *size);
        launch.restore()?;
        let tuned = launch.tune()?;
        if let Some(why) = launch.difference(usual, &[tuned])? {
            return Ok(Err(why));
        }
        let mut compared: Vec<(Size, u64)> = Vec::new();
        for size in [usual, suggested, tuned, fastest] {
            if compared.iter().all(|(known, _)| *known != size) {
                compared.push((size, u64::MAX));
            }
        }
        for _ in 0..ROUNDS {
            for (size, time) in &mut compared {
                *time = (launch.run_afresh(*size, count)? / count).min(*time);
            }
        }
        let of = |size: Size| {
            let ns = compared.iter().find(|(known, _)| *known == size).map_or(u64::MAX, |(_, ns)| *ns);
            (size, ns)
        };
        let best = compared.iter().min_by_key(|(_, ns)| *ns).copied().unwrap_or(of(fastest));
        Ok(Ok(Self {
            name: name.into(),
            threads,
            sizes: sizes.len(),
            usual: of(usual),
            suggested: of(suggested),
            tuned: of(tuned),
            best,
        }))
    }

    /// How many times as fast as 256 threads the suggested size is.
    pub fn of_suggestion(&self) -> f64 {
        self.usual.1 as f64 / self.suggested.1.max(1) as f64
    }

    /// How many times as fast as 256 threads the tuned size is.
    pub fn gain(&self) -> f64 {
        self.usual.1 as f64 / self.tuned.1.max(1) as f64
    }

    /// How many times as long as the best size the tuned one takes.
    pub fn of_best(&self) -> f64 {
        self.tuned.1 as f64 / self.best.1.max(1) as f64
    }

    /// Cells of a table.
    pub fn cells(&self, time_text: impl Fn(u64) -> String) -> Vec<String> {
        let cell = |(size, ns): (Size, u64)| format!("{} {}", size_text(size), time_text(ns));
        let mut cells = vec![self.name.clone(), size_text(self.threads), self.sizes.to_string()];
        cells.extend([self.usual, self.suggested, self.tuned, self.best].map(cell));
        cells.extend([self.of_suggestion(), self.gain(), self.of_best()].map(|ratio| format!("{ratio:.3}")));
        cells
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let one = |(size, ns): (Size, u64)| json!({ "group": size, "ns": ns });
        json!({
            "name": self.name, "threads": self.threads, "sizes": self.sizes, "usual": one(self.usual),
            "suggested": one(self.suggested), "tuned": one(self.tuned), "best": one(self.best),
        })
    }
}

/// 256 threads in the shape of a grid.
pub fn usual_of(threads: Size) -> Size {
    if threads[1] > 1 { [32, 8, 1] } else { [256, 1, 1] }
}

/// `256`, `32x8` or `32x4x2`.
pub fn size_text([x, y, z]: Size) -> String {
    match (y, z) {
        (1, 1) => x.to_string(),
        (_, 1) => format!("{x}x{y}"),
        _ => format!("{x}x{y}x{z}"),
    }
}

fn sides(suggestion: &Suggestion) -> Size {
    suggestion.group.to_array().map(|side| side as usize)
}

/// Multiples of a simdgroup along x for one dimension; powers of two in each for more.
fn all_sizes(threads: Size, kernel: &Kernel) -> Vec<Size> {
    let most = MOST_THREADS.min(kernel.max_threads_per_threadgroup() as usize);
    if threads[1] <= 1 && threads[2] <= 1 {
        return (1..=most / 32).map(|simdgroups| [simdgroups * 32, 1, 1]).collect();
    }
    let powers =
        |from: u32, most: usize| (from..=10).map(|power| 1 << power).filter(move |side| *side <= most);
    let mut sizes = Vec::new();
    for x in powers(2, threads[0]) {
        for y in powers(0, threads[1]) {
            for z in powers(0, threads[2].min(64)) {
                if (32..=most).contains(&(x * y * z)) {
                    sizes.push([x, y, z]);
                }
            }
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use elinvar::Device;

    use super::*;

    #[test]
    fn sizes_are_all_within_the_limits() {
        let library = Device::cpu().unwrap().compile(elinvar::Source::msl(
            "kernel void k(device float* a [[buffer(0)]], uint i [[thread_position_in_grid]]) { a[i] = 1.0f; }",
        ));
        let kernel = library.unwrap().kernel("k").unwrap();
        assert_eq!(all_sizes([4096, 1, 1], &kernel).len(), 32);
        let plane = all_sizes([512, 512, 1], &kernel);
        assert!(plane.contains(&[32, 8, 1]) && plane.contains(&[8, 8, 1]) && plane.len() > 30);
        assert!(
            all_sizes([128, 128, 128], &kernel)
                .iter()
                .all(|size| (32..=1024).contains(&size.iter().product::<usize>()))
        );
    }
}
