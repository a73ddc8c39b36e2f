//! Several devices on the command line: benchmarks, and the model of collectives.

mod common;

use common::{Folder, elinvar, elinvar_with};
use serde_json::Value;

const THREE: [(&str, &str); 1] = [("ELINVAR_CPU_DEVICES", "3")];

fn results(json: &Value) -> &Vec<Value> {
    json["results"].as_array().expect("results")
}

/// Each row computes the right result, or says why it cannot.
#[test]
fn the_benchmark_of_several_devices_measures_or_says_why_not() {
    elinvar(&["bench", "devices", "nothing"])
        .expect(2, &["`nothing` is not a row of devices", "halo_exchange"]);
    let rows = ["copy_1_mib", "all_reduce_small", "halo_exchange", "nbody", "product_rows"];
    let words: Vec<&str> = ["bench", "devices"].into_iter().chain(rows).collect();
    let text = elinvar_with(&words, &THREE);
    text.expect(0, &[]);
    assert!(rows.iter().all(|row| text.stdout.contains(&format!("\n{row} "))), "{}", text.stdout);
    let json = elinvar_with(&["bench", "devices", "nbody", "unlike_devices", "--json"], &THREE).json();
    assert_eq!(json["devices"].as_array().map(Vec::len), Some(3));
    let [nbody, unlike] = &results(&json)[..] else { panic!("{json}") };
    assert!(nbody["value"].as_f64().is_some_and(|gain| gain > 0.0) && nbody["error"].is_null(), "{nbody}");
    assert!(unlike["value"].is_number() || unlike["error"].as_str().is_some_and(|why| why.contains("GPU")));
    let one = elinvar_with(&["bench", "devices", "nbody"], &[("ELINVAR_CPU_DEVICES", "1")]);
    one.expect(0, &[]);
    assert!(one.stdout.contains("there is one device only"), "{}", one.stdout);
}

const NETWORK: &str = "link * * 1e10 1e-6\nreduce 1e12\n";

#[test]
fn collectives_are_predicted_and_simulated() {
    let folder = Folder::new();
    let network = folder.write("cluster.network", NETWORK);
    let words = ["collectives", "--network", &network, "--bytes", "1048576", "--json"];
    let json = elinvar(&[&words[..], &["--members", "4,1024"]].concat()).json();
    let find = |name: &str, algorithm: &str, members: u64| {
        let is = |row: &&Value| {
            row["collective"] == name && row["algorithm"] == algorithm && row["members"] == members
        };
        results(&json).iter().find(is).and_then(|row| row["predicted_s"].as_f64()).expect("a row")
    };
    // 2 (n - 1) (1 us + (1 MiB / n) / 10 GB/s) and (n - 1) / n MiB / 1 TB/s.
    for members in [4_u64, 1024] {
        let (n, m) = (members as f64, 1048576.0);
        let expected = 2.0 * (n - 1.0) * (1e-6 + m / n / 1e10) + m * (n - 1.0) / n / 1e12;
        let predicted = find("all-reduce", "ring", members);
        assert!((predicted / expected - 1.0).abs() < 1e-9, "{predicted}, expected {expected}");
    }
    assert!((find("barrier", "dissemination", 1024) - 1e-5).abs() < 1e-12);
    let json = elinvar(&[&words[..], &["--simulate", "8"]].concat()).json();
    assert_eq!(results(&json).len(), 9);
    for row in results(&json) {
        let [predicted, simulated] =
            ["predicted_s", "simulated_s"].map(|name| row[name].as_f64().expect("a time"));
        assert!((simulated / predicted - 1.0).abs() < 1e-3, "{row}");
    }
    let wrong = folder.write("wrong.network", "link 0 1 fast 1e-6");
    elinvar(&["collectives", "--network", &wrong]).expect(1, &["line 1 of a network", "link 0 1 fast"]);
    elinvar_with(&["collectives"], &[("ELINVAR_CPU_DEVICES", "1")]).expect(1, &["one device only"]);
}

#[test]
fn collectives_are_measured_beside_the_prediction() {
    let words = ["collectives", "--measure", "--bytes", "4096", "--json"];
    let json = elinvar_with(&words, &THREE).json();
    assert_eq!(results(&json).len(), 18, "two and three members");
    for row in results(&json) {
        assert!(
            ["predicted_s", "measured_s"].iter().all(|name| row[*name].as_f64().is_some_and(|t| t > 0.0)),
            "{row}"
        );
    }
    // What `devices` has measured is a network.
    let folder = Folder::new();
    let topology = elinvar_with(&["devices", "--topology", "--measure", "--json"], &THREE);
    let file = folder.write("links.json", &topology.stdout);
    let predicted =
        elinvar(&["collectives", "--network", &file, "--members", "3", "--bytes", "64", "--json"]).json();
    assert!(results(&predicted).iter().all(|row| row["predicted_s"].as_f64().is_some_and(|t| t > 0.0)));
}
