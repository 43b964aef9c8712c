//! `hourglass job run seal`: its effect, its output while it waits, and the status of the job.

use super::{START, line};
use crate::support::prelude::*;

/// Nothing is flushed or sealed without a request.
const LAZY: &str =
    "[flush]\ninterval = \"1h\"\nquiet = \"10m\"\n[seal]\nafter = \"0s\"\n[sensors]\nwrite_interval = \"100ms\"\n";

fn write(server: &Server) {
    let lines: String = (0..1440).step_by(60).map(|minute| line(0, minute, minute)).collect();
    post(&server.url("/write?db=d&precision=s"), lines, &[]).expect(204);
}

/// Regression: unflushed readings were ignored, so the command reported 0 sealed days.
#[test]
fn a_requested_seal_covers_every_earlier_ack() {
    for store in stores() {
        let server = Launch::with_store(store).config(LAZY).start();
        write(&server);
        let output = hourglass(&["job", "run", "seal", "--server", &server.url("")]).expect_success().stdout;
        assert!(output.contains("days 1,") && output.contains("readings 24"), "{output}");
        assert_eq!(progress(&server, "seal", "days"), 1);
    }
}

/// Regression: during a round, the status showed only the result of an earlier one.
#[test]
fn the_status_shows_a_running_round() {
    let halt = Halt::new();
    let launch = halt.launch(Launch::embedded().config(LAZY), "days_listed");
    let server = launch.start();
    assert_eq!(job(&server, "seal")["left"], json!(null));
    let first = ask_job(&server, "seal").expect(200).json();
    assert_eq!((&first["state"], &first["left"]), (&json!("waiting"), &json!(0)), "{first}");
    write(&server);
    halt.set();
    let url = run_url(&server, "seal");
    let request = std::thread::spawn(move || post(&url, "", &[]).expect(202).json());
    halt.await_met("it is halted");
    let now = job(&server, "seal");
    assert_eq!((&now["state"], &now["left"]), (&json!("running"), &json!(null)), "{now}");
    let request = request.join().expect("an answer");
    assert_eq!((&request["state"], &request["left"]), (&json!("running"), &json!(null)), "{request}");
    halt.lift();
    let ended = eventually("the run ends", || Some(job(&server, "seal")).filter(|now| now["state"] == "waiting"));
    assert_eq!((&ended["progress"]["days"], &ended["left"]), (&json!(1), &json!(0)), "{ended}");
}

/// Regression: the command repeated "0 days" without the reason: the WAL of a killed instance held the floor.
#[test]
fn the_seal_command_names_what_it_waits_for() {
    let store = mongod().uri(&fresh_database_name());
    let [server, mut killed] = [(); 2].map(|()| Launch::with_store(&store).config(LAZY).start());
    post(&killed.url("/write?db=d&precision=s"), format!("other v=1 {START}"), &[]).expect(204);
    killed.kill();
    write(&server);
    let mut command = program();
    let mut child = command
        .args(["job", "run", "seal", "--server", &server.url("")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    let waiting = lines.by_ref().find(|line| line.contains("unsettled 1")).expect("why it waits");
    let now = job(&server, "seal");
    assert_eq!((&now["state"], &now["left"]), (&json!("running"), &json!(1)), "{now}");
    // Its log is flushed now and holds the floor no more.
    killed.restart();
    flush(&killed);
    let rest: Vec<String> = lines.collect();
    assert!(child.wait().expect("it ends").success(), "{rest:?}");
    assert!(!rest.contains(&waiting), "{waiting} is said again: {rest:?}");
}
