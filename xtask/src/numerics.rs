//! `numerics`: measures the float functions of MSL on the CPU device and writes docs/numerics.md.
//!
//! `functions` lists functions and error bounds, `formats` float formats, `inputs` sample inputs; `exact` computes references to any
//! precision, `measure` runs the kernels and finds the maximum error, `page` writes the page. A function that exceeds its bound makes the
//! command fail.

mod exact;
mod formats;
mod functions;
mod inputs;
mod measure;
mod page;

use std::path::Path;

use anyhow::{Context, Result, bail};
use elinvar::{Device, MathMode, bf16, f16};

use functions::{FUNCTIONS, Function};
use measure::Row;

const SAMPLES: usize = 1_000_000;

/// Measures the functions that `words` lists, or all. The page is written only for all.
pub fn run(root: &Path, words: &[&str]) -> Result<()> {
    let (mut json, mut samples, mut names) = (false, SAMPLES, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--json" => json = true,
            "--samples" => {
                let count = words.next().context("--samples needs a number")?;
                samples = count.parse().with_context(|| format!("--samples {count}"))?;
            }
            name if FUNCTIONS.iter().any(|f| f.name == name) => names.push(name),
            other => bail!("numerics: `{other}` is neither an option nor a function that is measured"),
        }
    }
    let chosen: Vec<&Function> =
        FUNCTIONS.iter().filter(|f| names.is_empty() || names.contains(&f.name)).collect();
    let device = Device::cpu()?;
    let mut rows = Vec::new();
    for math in [MathMode::Safe, MathMode::Fast] {
        rows.extend(measure::all::<f32>(&device, &chosen, math, samples)?);
        rows.extend(measure::all::<f16>(&device, &chosen, math, samples)?);
        rows.extend(measure::all::<bf16>(&device, &chosen, math, samples)?);
    }
    if json {
        println!("{}", page::json(&rows));
    } else {
        print!("{}", page::tables(&rows));
    }
    if names.is_empty() && samples >= SAMPLES {
        let path = root.join("docs/numerics.md");
        std::fs::create_dir_all(root.join("docs")).context("making docs/")?;
        std::fs::write(&path, page::whole(&rows, samples))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    let beyond: Vec<String> = rows.iter().filter(|r| !r.within()).map(Row::title).collect();
    if beyond.is_empty() { Ok(()) } else { bail!("beyond their bounds: {}", beyond.join(", ")) }
}
