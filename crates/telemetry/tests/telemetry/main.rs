//! Tests of telemetry: what reaches subscribers, scrapers and collectors is what the program did.
//!
//! Those with real collectors need `prometheus`, `promtool` and `rotel-agent` in the folder `ELINVAR_COLLECTORS`, where `scripts/setup.sh numpy` puts them. If that is
//! not set they are ignored and the reason is printed; with `ELINVAR_REQUIRE_COLLECTORS=1`, which `make test` sets on Debian, they fail.
//!
//! Those with a browser need a Chromium, which `ELINVAR_CHROMIUM` names. If that is not set they are ignored and the reason is printed.

mod events;
mod http;
mod otlp;
mod prometheus;
mod report;
mod support;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

/// A test, given the folder of the collectors, or the browser.
type Case = fn(&std::path::Path);

const CASES: &[(&str, fn())] = &[
    ("events::what_is_reported_is_what_the_page_lists", events::what_is_reported_is_what_the_page_lists),
    ("http::requests_are_answered_by_what_they_accept", http::requests_are_answered_by_what_they_accept),
    ("http::hostile_clients_do_not_stop_the_server", http::hostile_clients_do_not_stop_the_server),
    ("http::a_failing_device_is_not_healthy", http::a_failing_device_is_not_healthy),
    ("report::a_report_has_what_the_devices_did", report::a_report_has_what_the_devices_did),
    (
        "report::figures_of_kernels_and_advice_are_those_of_the_lines",
        report::figures_of_kernels_and_advice_are_those_of_the_lines,
    ),
    ("report::work_of_launches_is_in_the_report", report::work_of_launches_is_in_the_report),
    ("report::hostile_names_stay_data", report::hostile_names_stay_data),
    ("prometheus::the_dashboard_queries_what_is_listed", prometheus::the_dashboard_queries_what_is_listed),
    ("otlp::metrics_are_the_snapshot", otlp::metrics_are_the_snapshot),
    ("otlp::an_absent_collector_is_no_failure", otlp::an_absent_collector_is_no_failure),
];

const WITH_COLLECTORS: &[(&str, Case)] = &[
    ("prometheus::queries_return_what_the_program_did", prometheus::queries_return_what_the_program_did),
    ("prometheus::promtool_accepts_metrics_and_rules", prometheus::promtool_accepts_metrics_and_rules),
    ("otlp::a_collector_gets_metrics_logs_and_spans", otlp::a_collector_gets_metrics_logs_and_spans),
];

const WITH_BROWSER: &[(&str, Case)] = &[
    ("report::a_browser_shows_what_the_devices_did", report::a_browser_shows_what_the_devices_did),
    ("report::a_browser_draws_the_roofline", report::a_browser_draws_the_roofline),
    ("report::a_browser_shows_hostile_names_and_nothing", report::a_browser_shows_hostile_names_and_nothing),
    (
        "report::a_browser_draws_what_is_visible_of_many_slices",
        report::a_browser_draws_what_is_visible_of_many_slices,
    ),
];

fn main() -> ExitCode {
    // While there is one subscriber, `tracing` asks that of the thread that first reaches a span whether anybody is interested in it. Cases
    // subscribe on their threads, and with this second one all are asked.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    let folder = std::env::var_os("ELINVAR_COLLECTORS").map(PathBuf::from);
    let required = std::env::var("ELINVAR_REQUIRE_COLLECTORS").is_ok_and(|value| value == "1");
    let missing = "ELINVAR_COLLECTORS is not set: run `scripts/setup.sh numpy FOLDER` and set ELINVAR_COLLECTORS=FOLDER/bin";
    if folder.is_none() && !required {
        eprintln!("cases with real collectors are ignored: {missing}");
    }
    let folder = Arc::new(folder);
    let cases = CASES.iter().map(|(name, case)| {
        Trial::test(*name, || {
            case();
            Ok(())
        })
    });
    let with_collectors = WITH_COLLECTORS.iter().map(|(name, case)| {
        let (folder, is_ignored) = (folder.clone(), folder.is_none() && !required);
        let run = move || {
            case(folder.as_deref().ok_or_else(|| Failed::from(missing))?);
            Ok(())
        };
        Trial::test(*name, run).with_ignored_flag(is_ignored)
    });
    let no_browser = "ELINVAR_CHROMIUM is not set: install Debian's package `chromium` and set ELINVAR_CHROMIUM=/usr/bin/chromium";
    let browser = std::env::var_os("ELINVAR_CHROMIUM").filter(|name| !name.is_empty()).map(PathBuf::from);
    if browser.is_none() {
        eprintln!("cases with a browser are ignored: {no_browser}");
    }
    let with_browser = WITH_BROWSER.iter().map(|(name, case)| {
        let (browser, is_ignored) = (browser.clone(), browser.is_none());
        let run = move || {
            case(browser.as_deref().ok_or_else(|| Failed::from(no_browser))?);
            Ok(())
        };
        Trial::test(*name, run).with_ignored_flag(is_ignored)
    });
    let all = cases.chain(with_collectors).chain(with_browser).collect();
    libtest_mimic::run(&Arguments::from_args(), all).exit_code()
}
