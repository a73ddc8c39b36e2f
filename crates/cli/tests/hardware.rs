//! Sensors and energy on the command line: a value, or the reason why there is none.

mod common;

use common::{elinvar, elinvar_with, example};

#[test]
fn sensors_have_a_value_or_a_reason() {
    let text = elinvar(&["devices", "--sensors"]);
    text.expect(0, &[]);
    assert!(text.stdout.contains("  sensors  read in "), "{}", text.stdout);
    let json = elinvar(&["devices", "--sensors", "--json"]).json();
    let devices = json["devices"].as_array().expect("devices");
    let cpu = devices.iter().find(|device| device["kind"] == "cpu").expect("the CPU is always there");
    let sensors = cpu["sensors"].as_array().expect("sensors");
    for sensor in sensors {
        let has = [sensor["value"].is_number(), sensor["unsupported"].is_string()];
        assert_eq!(has.iter().filter(|has| **has).count(), 1, "{sensor}");
        assert!(sensor["name"].is_string() && sensor["unit"].is_string() && sensor["attributes"].is_object());
        let name = sensor["name"].as_str().unwrap_or_default();
        assert!(text.stdout.contains(name), "{name} is missing in {}", text.stdout);
        if let Some(part) = sensor["unsupported"].as_str() {
            assert!(text.stdout.contains(part), "{part} is missing in {}", text.stdout);
        }
    }
    let without = elinvar(&["devices", "--json"]).json();
    assert!(without["devices"][0]["sensors"].is_null());
}

/// Whether the energy of the CPU is measured for this user.
fn has_energy() -> bool {
    std::fs::read_to_string("/sys/class/powercap/intel-rapl:0/energy_uj").is_ok()
}

#[test]
fn the_energy_of_a_run_is_measured_or_says_why_not() {
    let file = example("vector_add");
    let words =
        ["run", &file, "--kernel", "vector_add", "--grid", "64", "--device", "cpu", "--energy", "--json"];
    let args =
        ["--arg", "a=f32:64:ramp", "--arg", "b=f32:64:ones", "--arg", "out=f32:64:zeros", "--arg", "n=64u32"];
    let words: Vec<&str> = words.into_iter().chain(args).chain(["--out", "out"]).collect();
    let json = elinvar(&words).json();
    assert_eq!(json["outputs"][0]["mean"], 32.5, "{json}");
    let energy = &json["energy"];
    if has_energy() {
        let (joules, error) = (energy["joules"].as_f64().unwrap(), energy["error_joules"].as_f64().unwrap());
        assert!(joules > 0.0 && error <= 0.05 * joules, "{energy}");
    } else {
        assert!(
            energy["unsupported"].as_str().is_some_and(|why| why.contains("/sys/class/powercap")),
            "{energy}"
        );
    }
}

#[test]
fn power_preferences_are_compared_and_restored() {
    let json = elinvar(&["bench", "--energy", "--threads", "2", "--json"]).json();
    let rows = json["results"].as_array().expect("rows");
    let settings = ["HighPerformance", "LowPower", "Thermal::Serious"];
    let expected: Vec<_> = ["matmul_naive", "vector_add"]
        .iter()
        .flat_map(|job| settings.map(|setting| (*job, setting)))
        .collect();
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row["job"].as_str().unwrap_or_default(), row["setting"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(found, expected);
    for row in rows {
        assert!(row["median_ns"].as_u64() > Some(0) && row["time_ratio"].as_f64() > Some(0.0), "{row}");
        let is_measured = row["energy"]["joules"].as_f64() > Some(0.0) && row["energy_ratio"].is_number();
        let why = row["energy"]["unsupported"].as_str();
        // A measurement may give up on a busy machine.
        assert!(
            is_measured || why.is_some_and(|why| has_energy() || why.contains("/sys/class/powercap")),
            "{row}"
        );
    }
    let refused = elinvar(&["bench", "--energy", "cpu"]);
    refused.expect(2, &["--energy"]);
}

#[test]
fn the_topology_has_every_pair() {
    let several = [("ELINVAR_CPU_DEVICES", "3")];
    let json = elinvar_with(&["devices", "--topology", "--measure", "--json"], &several).json();
    let of_cpu = |value: &serde_json::Value| value.as_str().is_some_and(|name| name.starts_with("cpu:"));
    let devices = json["devices"].as_array().expect("devices");
    assert_eq!(devices.iter().filter(|device| of_cpu(&device["device"])).count(), 3);
    let pairs = json["pairs"].as_array().expect("pairs");
    assert_eq!(pairs.len(), devices.len() * (devices.len() - 1));
    let among_cpus: Vec<_> =
        pairs.iter().filter(|pair| of_cpu(&pair["from"]) && of_cpu(&pair["to"])).collect();
    assert_eq!(among_cpus.len(), 6);
    for pair in among_cpus {
        assert!(pair["route"] == "peer" && pair["access"] == true, "{pair}");
        assert!(pair["measured_bytes_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{pair}");
    }
    let text = elinvar_with(&["devices", "--topology"], &several);
    text.expect(0, &[]);
    assert!(text.stdout.contains("cpu:2  "), "{}", text.stdout);
    let dot = elinvar_with(&["devices", "--topology", "--dot"], &several);
    assert!(dot.stdout.starts_with("graph topology {"), "{}", dot.stdout);
    elinvar(&["devices", "--measure"]).expect(2, &["--topology"]);
    elinvar_with(&["devices"], &[("ELINVAR_CPU_DEVICES", "many")]).expect(1, &["ELINVAR_CPU_DEVICES=many"]);
}
