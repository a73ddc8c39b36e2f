//! Copies from one device to the next, compared with `cuMemcpyPeerAsync`, or with `memcpy` between CPU devices.

use elinvar::HostAccess;

use super::bare::PeerCopy;
use super::{Figure, Setup, medians, timed};
use crate::bench::cpu::problem::scattered;
use crate::failure::{Failure, Result};
use crate::report::time_text;

/// Copies of these bytes in one stream, and one wait.
pub(super) fn copy(setup: &Setup, bytes: usize, count: usize) -> Result<Figure> {
    setup.expect_several()?;
    let (one, other) = (&setup.devices[0], &setup.devices[1]);
    let words = bytes / 4;
    let data: Vec<u32> = scattered(words, u32::MAX).collect();
    let mut source = one.buffer_for::<u32>(words, HostAccess::Never)?;
    let mut target = other.buffer_for::<u32>(words, HostAccess::Never)?;
    source.write(&data)?;
    let stream = one.stream()?;
    stream.copy(&source, &mut target)?.wait()?;
    if target.to_vec()? != data {
        return Err(Failure::Machine("the copy is wrong".into()));
    }
    let mut ours = || {
        timed(|| {
            let mut last = None;
            for _ in 0..count {
                last = Some(stream.copy(&source, &mut target)?);
            }
            last.map(|done| done.wait()).transpose()?;
            Ok(())
        })
    };
    let (name, times) = if setup.is_cuda() {
        let bare = PeerCopy::new(0, 1, bytes)?;
        ("cuMemcpyPeerAsync", medians(&mut [&mut ours, &mut || bare.run(count)])?)
    } else {
        let mut copied = vec![0; words];
        let mut memcpy = || {
            timed(|| {
                for _ in 0..count {
                    copied.copy_from_slice(&data);
                    std::hint::black_box(&mut copied);
                }
                Ok(())
            })
        };
        ("memcpy", medians(&mut [&mut ours, &mut memcpy])?)
    };
    let rate = |ns: u64| (bytes * count) as f64 / ns.max(1) as f64;
    let route = one.route_to(other).map_or("none", elinvar::Route::name);
    let [ours, theirs] = [times[0], times[1]];
    let detail = format!(
        "{} ({:.1} GB/s, route {route}) against {} of {name}",
        time_text(ours / count as u64),
        rate(ours),
        time_text(theirs / count as u64)
    );
    Ok(Figure { value: theirs as f64 / ours.max(1) as f64, unit: "x", detail })
}
