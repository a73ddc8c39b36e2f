//! A frame as a screen, and as text.

use std::fmt::Write as _;

use ratatui::Frame as Area;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};

use super::state::{DeviceFrame, Frame, KernelFrame};
use crate::report::{time_text, visible};

/// Number of failures that are shown.
const FAILURES: usize = 3;
const COLUMNS: [&str; 6] = ["kernel", "/ s", "share", "mean", "count", "failed"];

fn bytes_text(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

fn summary(device: &DeviceFrame) -> String {
    format!(
        "busy {:.0} %, {:.0} submissions/s, {} in all, {} failed; memory {}, idle {}",
        100.0 * device.busy,
        device.submissions_per_s,
        device.submissions,
        device.failed,
        bytes_text(device.live_bytes),
        bytes_text(device.idle_bytes)
    )
}

fn cells(kernel: &KernelFrame) -> [String; 6] {
    [
        visible(&kernel.name),
        format!("{:.0}", kernel.per_s),
        format!("{:.0} %", 100.0 * kernel.share),
        kernel.mean_ns.map_or_else(String::new, time_text),
        kernel.count.to_string(),
        kernel.failed.to_string(),
    ]
}

/// The whole frame as text.
pub fn text(frame: &Frame) -> String {
    let mut text = String::new();
    if frame.devices.is_empty() {
        text.push_str("no device has done anything yet\n");
    }
    for device in &frame.devices {
        let rows: Vec<[String; 6]> =
            std::iter::once(COLUMNS.map(str::to_owned)).chain(device.kernels.iter().map(cells)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);
        // Writing to a string does not fail.
        let _ok = writeln!(text, "{}\n  {}", visible(&device.title), summary(device));
        for row in &rows {
            let _ok = write!(text, "  {:<1$}", row[0], widths[0]);
            for (cell, width) in row.iter().zip(widths).skip(1) {
                let _ok = write!(text, "  {cell:>width$}");
            }
            text.push('\n');
        }
    }
    for failure in frame.failures.iter().rev().take(FAILURES).rev() {
        let _ok = writeln!(text, "failed: {}", visible(failure));
    }
    text
}

/// Draws the frame: devices share the height, failures are at the bottom. Texts are paragraphs, which may be outside of a small screen.
pub fn draw(area: &mut Area<'_>, frame: &Frame, paused: bool) {
    let failures = frame.failures.len().min(FAILURES) as u16;
    let [devices, errors, keys] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(failures), Constraint::Length(1)])
            .areas(area.area());
    if frame.devices.is_empty() {
        area.render_widget(Paragraph::new("no device has done anything yet"), devices);
    }
    let rows = Layout::vertical(frame.devices.iter().map(|_| Constraint::Fill(1))).split(devices);
    for (device, place) in frame.devices.iter().zip(rows.iter()) {
        let block = Block::bordered().title(visible(&device.title));
        let inside = block.inner(*place);
        area.render_widget(block, *place);
        let [line, history, table] =
            Layout::vertical([Constraint::Length(1), Constraint::Length(2), Constraint::Fill(1)])
                .areas(inside);
        area.render_widget(Paragraph::new(summary(device)), line);
        let shown = device.history.len().saturating_sub(usize::from(history.width));
        let data = device.history[shown..].iter().map(|busy| (busy * 100.0) as u64);
        area.render_widget(Sparkline::default().data(data).max(100).style(Color::Green), history);
        let widths = [Constraint::Fill(1)].into_iter().chain([Constraint::Length(10); 5]);
        let rows = device.kernels.iter().map(|kernel| {
            let style = if kernel.failed > 0 { Style::new().red() } else { Style::new() };
            Row::new(cells(kernel)).style(style)
        });
        area.render_widget(Table::new(rows, widths).header(Row::new(COLUMNS).bold()), table);
    }
    let last = frame.failures.iter().rev().take(FAILURES).rev();
    let last: Vec<Line<'_>> = last.map(|failure| Line::from(visible(failure)).red()).collect();
    area.render_widget(Paragraph::new(last), errors);
    let state = if paused { "paused; " } else { "" };
    area.render_widget(Paragraph::new(format!("{state}q quits, p pauses")), keys);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn frame() -> Frame {
        let kernel = |name: &str, share, failed| KernelFrame {
            name: name.into(),
            per_s: 120.4,
            share,
            mean_ns: Some(1500),
            count: 7,
            failed,
        };
        let device = DeviceFrame {
            title: "cpu Some processor, program 12".into(),
            busy: 0.5,
            history: vec![0.0, 1.0, 0.5],
            submissions_per_s: 60.0,
            submissions: 90,
            failed: 1,
            live_bytes: 3 << 20,
            idle_bytes: 1 << 20,
            kernels: vec![kernel("add", 0.75, 0), kernel("wi\u{1b}[31mld", 0.25, 1)],
        };
        Frame { devices: vec![device], failures: vec!["program 12: kernel `wild`: fault".into()] }
    }

    #[test]
    fn text_has_every_figure() {
        let text = text(&frame());
        let expected = [
            "cpu Some processor, program 12\n",
            "  busy 50 %, 60 submissions/s, 90 in all, 1 failed; memory 3.00 MiB, idle 1.00 MiB\n",
            "120   75 %  1.50 µs      7       0\n",
            "failed: program 12: kernel `wild`: fault\n",
        ];
        for part in expected {
            assert!(text.contains(part), "`{part}` in\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn a_screen_has_devices_and_failures() {
        for [width, height] in [[100, 20], [40, 8], [1, 1]] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
            terminal.draw(|area| draw(area, &frame(), false)).expect("it is drawn");
            let screen = terminal.backend().to_string();
            if width == 100 {
                for part in
                    ["cpu Some processor, program 12", "busy 50 %", "add ", "1.50 µs", "fault", "q quits"]
                {
                    assert!(screen.contains(part), "`{part}` in\n{screen}");
                }
            }
        }
        let mut terminal = Terminal::new(TestBackend::new(60, 5)).expect("a screen");
        let empty = Frame { devices: Vec::new(), failures: Vec::new() };
        terminal.draw(|area| draw(area, &empty, true)).expect("it is drawn");
        assert!(terminal.backend().to_string().contains("no device has done anything yet"));
    }
}
