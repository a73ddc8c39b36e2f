//! An image of a device's roofline, with the place of each launch.

use std::fmt::Write as _;

use elinvar_analysis::Roofline;

use super::escaped;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 32.0;
const COLORS: [&str; 6] = ["#4c78a8", "#f58518", "#54a24b", "#e45756", "#b279a2", "#9d755d"];

/// A logarithmic axis from one power of ten to another.
struct Axis {
    from: i32,
    to: i32,
}

impl Axis {
    /// With all values, of which there is one, above 0.
    fn over(values: impl Iterator<Item = f64> + Clone) -> Self {
        let logs = values.map(f64::log10);
        let from = logs.clone().fold(f64::INFINITY, f64::min).floor() as i32;
        let to = logs.fold(f64::NEG_INFINITY, f64::max).ceil() as i32;
        Self { from, to: to.max(from + 1) }
    }

    /// The place of a value, from 0 to 1.
    fn at(&self, value: f64) -> f64 {
        (value.log10() - f64::from(self.from)) / f64::from(self.to - self.from)
    }

    fn powers(&self) -> impl Iterator<Item = f64> {
        (self.from..=self.to).map(|power| 10_f64.powi(power))
    }
}

/// An SVG image: attainable GFLOP/s over FLOP/B, for a peak rate in FLOP/s and a memory bandwidth in bytes per second. A launch without
/// floating-point operations has no place.
pub fn plot(title: &str, peak: f64, bandwidth: f64, launches: &[(String, Roofline)]) -> String {
    let ridge = peak / bandwidth;
    let placed =
        launches.iter().filter(|(_, roofline)| roofline.attainable > 0.0 && roofline.intensity.is_finite());
    let intensities = placed.clone().map(|(_, roofline)| roofline.intensity);
    let x = Axis::over(intensities.chain([ridge / 10.0, ridge * 10.0]));
    let low = 10_f64.powi(x.from) * bandwidth;
    let y = Axis::over([low, peak].into_iter());
    let (right, bottom) = (LEFT + WIDTH, TOP + HEIGHT);
    let place = |intensity: f64, rate: f64| (LEFT + WIDTH * x.at(intensity), bottom - HEIGHT * y.at(rate));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"18\" font-size=\"13\">{}</text>\n",
        right + 32.0,
        bottom + 44.0 + 16.0 * placed.clone().count() as f64,
        escaped(title)
    );
    for power in x.powers() {
        let (at, _) = place(power, peak);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{power}</text>",
            bottom + 16.0
        );
    }
    for power in y.powers() {
        let (_, at) = place(ridge, power);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            power / 1e9
        );
    }
    let (least, most) = (10_f64.powi(x.from), 10_f64.powi(x.to));
    let corners = [place(least, least * bandwidth), place(ridge, peak), place(most, peak)];
    let corners = corners.map(|(x, y)| format!("{x:.1},{y:.1}")).join(" ");
    let _ =
        writeln!(svg, "<polyline points=\"{corners}\" fill=\"none\" stroke=\"black\" stroke-width=\"1.5\"/>");
    let _ = writeln!(
        svg,
        "<text x=\"{right}\" y=\"{}\" text-anchor=\"end\">operations for each byte (FLOP/B); rates in GFLOP/s</text>",
        bottom + 36.0
    );
    for (index, (name, roofline)) in placed.enumerate() {
        let ((x, y), color) = (place(roofline.intensity, roofline.attainable), COLORS[index % COLORS.len()]);
        let label = format!(
            "{name}: {:.3} FLOP/B, at most {:.1} GFLOP/s, {:.1} µs",
            roofline.intensity,
            roofline.attainable / 1e9,
            roofline.seconds * 1e6
        );
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y:.1}\" y2=\"{bottom}\" stroke=\"{color}\" stroke-dasharray=\"3 3\"/>\
             <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{color}\"><title>{}</title></circle>\
             <circle cx=\"{}\" cy=\"{}\" r=\"4\" fill=\"{color}\"/><text x=\"{}\" y=\"{}\">{}</text>",
            escaped(&label),
            LEFT + 4.0,
            bottom + 50.0 + 16.0 * index as f64,
            LEFT + 14.0,
            bottom + 54.0 + 16.0 * index as f64,
            escaped(&label)
        );
    }
    svg + "</svg>\n"
}
