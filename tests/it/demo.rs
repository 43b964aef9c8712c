//! `hourglass demo` shows its data, cleans up, and touches no other folder.

use crate::support::prelude::*;

const END: Duration = Duration::from_secs(45);
/// Days of history, enough for one sealed day.
const DAYS: &str = "2";

/// A running demo in the test's temp folder.
struct Demo {
    process: Process,
    temp: PathBuf,
}

impl Demo {
    fn start(temp: &Folder, arguments: &[&str]) -> Demo {
        let mut command = program();
        command.arg("demo").args(["--days", DAYS]).args(arguments);
        Demo::spawn(temp, command)
    }

    fn spawn(temp: &Folder, mut command: Command) -> Demo {
        let folder = temp.file("tmp");
        fs::create_dir_all(&folder).unwrap();
        command.current_dir(temp.path()).env("TMPDIR", &folder);
        // A demo ignores the configuration; this one would stop `serve`.
        command.env("HOURGLASS_STORE_URI", "mongodb://127.0.0.1:1");
        let [stdout, stderr] = ["stdout", "stderr"].map(|name| File::create(temp.file(name)).unwrap());
        Demo { process: Process::spawn(&command, stdout, stderr).unwrap(), temp: temp.path().to_owned() }
    }

    fn output(&self) -> String {
        fs::read_to_string(self.temp.join("stdout")).unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.temp.join("stderr")).unwrap()
    }

    /// Waits for a row of the banner and returns its value.
    #[track_caller]
    fn row(&mut self, what: &str) -> String {
        let is_of = |line: &&str| line.trim_start().starts_with(&format!("{what} "));
        eventually(what, || {
            let found = self.output().lines().find(is_of).map(|line| line.trim()[what.len()..].trim().to_owned());
            assert!(found.is_some() || self.process.exited().is_none(), "it ended: {}{}", self.output(), self.log());
            found
        })
    }

    /// Returns its URL without a trailing slash.
    #[track_caller]
    fn url(&mut self) -> String {
        self.row("page").split("/#").next().unwrap().to_owned()
    }

    #[track_caller]
    fn folder(&mut self) -> PathBuf {
        self.row("folder").split("  (").next().unwrap().into()
    }

    #[track_caller]
    fn end_by(&mut self, signal: &str) {
        self.process.signal(signal);
        let status = self.process.wait(END).unwrap_or_else(|| panic!("SIG{signal} does not end it"));
        assert_eq!(status.code(), Some(0), "SIG{signal}: {}{}", self.output(), self.log());
    }
}

fn entries(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn fetch_json(url: &str) -> Value {
    http::get(url).expect(200).json()
}

#[test]
fn the_demo_shows_history_live_readings_and_faults_and_cleans_up() {
    let temp = Folder::new("demo");
    let mut demo = Demo::start(&temp, &["--port", "0"]);
    let url = demo.url();
    let folder = demo.folder();
    assert_eq!(folder.parent(), Some(&*temp.file("tmp")));
    assert!(demo.row("history").contains("sealed"));
    demo.row("stop");

    let sealing = &fetch_json(&format!("{url}/api/v1/jobs/seal"))["progress"];
    assert!(sealing["days"].as_u64() >= Some(98), "{sealing}");
    assert_eq!(sealing["unsettled"], 0, "{sealing}");
    let counted =
        format!("{url}/api/v1/summary?measurement=energy&fields=energy_kwh&agg=count,max&step=1d&from=-2d&to=-1d");
    let counted = fetch_json(&counted);
    let meters = counted["series"].as_array().unwrap();
    assert_eq!(meters.len(), 8, "{counted}");
    let of_days = |meter: &Value| -> u64 {
        let windows = meter["windows"].as_array().unwrap();
        windows.iter().map(|window| window["fields"]["energy_kwh"]["count"].as_u64().unwrap()).sum()
    };
    // 24 hours from now to now, with a reading a minute.
    assert!(meters.iter().all(|meter| (1439..=1441).contains(&of_days(meter))), "{counted}");
    let owners =
        format!("{url}/api/v1/summary?measurement=climate&fields=temp&agg=avg&group_by=meta.owner&step=1d&from=-1d");
    assert_eq!(fetch_json(&owners)["series"][0]["tags"]["meta.owner"], "facility", "{}", fetch_json(&owners));

    let count = |measurement: &str, from: &str| -> u64 {
        let counted = fetch_json(&format!(
            "{url}/api/v1/summary?measurement={measurement}&agg=count&group_by=site&step=1d&from={from}"
        ));
        let fields =
            counted["series"].as_array().unwrap().iter().flat_map(|series| series["windows"].as_array().unwrap());
        fields
            .map(|window| window["fields"].as_object().unwrap().values().next().unwrap()["count"].as_u64().unwrap())
            .sum()
    };
    let before = count("energy", "-1h");
    wait_until("readings each second", || count("energy", "-1h") > before + 8);
    let silent =
        fetch_json(&format!("{url}/api/v1/readings?sensor=climate,line=c,sensor=cabinet,site=bremen&from=-90m"));
    assert!(!silent.to_string().contains("\"temp\""), "{silent}");
    for code in ["family", "syntax"] {
        wait_until(code, || {
            let rejections = fetch_json(&format!("{url}/api/v1/rejections?code={code}"));
            !rejections["rejections"].as_array().unwrap().is_empty()
        });
    }

    let kept = fetch_json(&format!(
        "{url}/api/v1/readings?sensor=climate,line=a,sensor=cabinet,site=porto&fields=humidity@string"
    ));
    assert!(kept.to_string().contains("\"humidity@string\":\""), "{kept}");
    wait_until("a sensor that outgrows its page", || {
        let outliers = fetch_json(&format!("{url}/api/v1/sensors?outlier=true"));
        outliers["sensors"][0]["sensor"] == "vibration,line=c,sensor=press,site=porto"
    });
    demo.end_by("INT");
    assert!(demo.output().ends_with(&format!("removed {}\n", folder.display())), "{}", demo.output());
    assert_eq!(entries(&temp.file("tmp")), Vec::<String>::new());
}

/// Regression: the log lacked some promised faults and warned of a slow request of the demo's own.
#[test]
fn each_demo_fault_is_printed_once_with_its_view() {
    let temp = Folder::new("demo");
    let mut demo = Demo::start(&temp, &["--port", "0"]);
    demo.row("stop");
    let views = [
        "/#sensors?kind=silent",
        "/#sensors?kind=outlier",
        "/#explore?m=climate&f=temp",
        "/#explore?m=vibration&f=rms",
        "/#rejections?code=family",
        "/#rejections?code=syntax",
        "beside the field",
    ];
    let is_told = |view: &&str| demo.log().contains(*view);
    wait_until("all faults", || views.iter().all(is_told));
    let log = demo.log();
    for view in views {
        assert_eq!(log.matches(view).count(), 1, "{view}: {log}");
    }
    assert!(!log.contains("slow request"), "{log}");
    demo.end_by("INT");
}

/// Regression: `demo --port` on a taken port suggested `--listen`, a flag of `serve`.
#[test]
fn a_taken_port_is_reported_with_the_demo_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let temp = Folder::new("demo");
    let port = taken.local_addr().unwrap().port().to_string();
    let refused =
        program().args(["demo", "--port", &port]).env("TMPDIR", temp.path()).current_dir(temp.path()).output().unwrap();
    let refusal_text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refusal_text}");
    assert!(
        refusal_text.contains("is it in use?")
            && refusal_text.contains("--port PORT")
            && !refusal_text.contains("--listen"),
        "{refusal_text}"
    );
    assert_eq!(entries(temp.path()), Vec::<String>::new());
}

#[test]
fn the_demo_needs_a_folder_of_its_own() {
    let temp = Folder::new("demo");
    let foreign = temp.file("mine");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("hourglass.redb"), "mine").unwrap();
    let refusal_text =
        hourglass(&["demo", "--port", "0", "--data-dir", path(&foreign)]).expect_failure("is not empty").stderr;
    assert!(refusal_text.starts_with("hourglass: "), "{refusal_text}");
    assert_eq!(entries(&foreign), ["hourglass.redb"]);
}

/// Each page of docs/patterns.md is about documents that the demo has.
#[track_caller]
fn every_pattern_has_an_example(store: &str) {
    let exists = |field: &str| doc! { field: { "$exists": true } };
    let examples = [
        ("bucket and computed", "buckets", exists("summary.temp.avg")),
        ("distribution", "buckets", exists("summary.temp.distribution.counts.6")),
        ("distribution of days", "days", exists("day.temp.distribution.counts.6")),
        ("days that are over", "days", doc! { "form": "packed", "day.temp.max": { "$gt": 0 } }),
        ("outlier: a page with overflow", "buckets", exists("overflow.pages")),
        ("outlier: overflow pages", "overflow", doc! { "page": { "$gte": 1 } }),
        ("outlier: marked sensors", "sensors", exists("outlier.since")),
        ("subset", "sensors", exists("recent.2")),
        ("computed on schedule", "sensors", exists("lifetime.fields.temp.max")),
        ("extended reference", "days", doc! { "meta.site": "Bremen, hall 2" }),
        (
            "both directions: a group",
            "groups",
            doc! { "group": "owner", "value": "maintenance", "members.1": { "$exists": true } },
        ),
        ("both directions: a sensor", "sensors", doc! { "groups.owner": "maintenance" }),
        ("many to many", "sensors", doc! { "groups.serves": { "$all": ["Bremen, hall 2", "bremen, line a"] } }),
        ("polymorphic", "days", doc! { "kind": "thermometer" }),
        ("unique metadata", "sensors", doc! { "kind": "meter", "meta.serial": { "$exists": true } }),
        ("versions side by side: sensors", "sensors", doc! { "schemaVersion": 1 }),
        ("versions side by side: days", "days", doc! { "schemaVersion": 2 }),
        ("the view of single readings", "recent_readings", doc! { "measurement": "tank" }),
    ];
    for (pattern, collection, filter) in examples {
        wait_until(pattern, || !find_one(store, collection, filter.clone()).is_empty());
    }
    let uncounted = doc! { "measurement": "climate", "day.temp.distribution": { "$exists": false } };
    assert!(find_one(store, "days", uncounted).is_empty(), "each day of the history has its distribution");
    let definitions = |command: Document| run_command(store, None, command).to_string();
    wait_until("the indexes", || {
        let indexes = definitions(doc! { "listIndexes": "default.sensors" });
        let names = ["unique.meter.serial", "text", "kind.thermometer", "meta.site"];
        names.iter().all(|name| indexes.contains(&format!("\"hourglass.{name}\"")))
    });
    let validators = definitions(doc! { "listCollections": 1, "filter": { "name": "default.buckets" } });
    assert!(validators.contains("power_kw") && validators.contains("moderate"), "{validators}");
}

fn find_one(store: &str, collection: &str, filter: Document) -> Vec<Document> {
    in_mongo(store, async |mongo| {
        let found = mongo.collection(&format!("default.{collection}")).find_one(filter).await.unwrap();
        found.into_iter().collect()
    })
}

/// In MongoDB everything is kept, and another demo does not add to it.
#[test]
fn on_mongodb_the_demo_needs_an_empty_database_and_removes_nothing() {
    let temp = Folder::new("demo");
    let store = mongod().uri(&fresh_database_name());
    let mut demo = Demo::start(&temp, &["--port", "0", "--store", &store]);
    demo.row("stop");
    let folder = demo.folder();
    every_pattern_has_an_example(&store);
    demo.end_by("INT");
    assert!(demo.output().contains("everything is left in the database: hourglass serve --store"), "{}", demo.output());
    assert!(!folder.exists());
    hourglass(&["demo", "--port", "0", "--store", &store]).expect_failure("needs an empty database");
    let server = Launch::with_store(&store).start();
    let url = server.url("/api/v1/measurements");
    wait_until("it is there", || fetch_json(&url).to_string().contains("vibration"));
}

#[test]
fn a_kept_demo_folder_can_be_served_and_the_demo_finds_a_free_port() {
    let temp = Folder::new("demo");
    // If this fails, another process has the port, which is just as good.
    let taken = TcpListener::bind("127.0.0.1:8086");
    let kept = temp.file("kept");
    let mut demo = Demo::start(&temp, &["--keep", "--data-dir", kept.to_str().unwrap()]);
    assert!(demo.row("page").ends_with("&by=line"), "{}", demo.output());
    drop(taken);
    demo.row("stop");
    demo.end_by("INT");
    assert!(
        demo.output().ends_with(&format!("kept: hourglass serve --data-dir '{}'\n", kept.display())),
        "{}",
        demo.output()
    );
    let refused = program().args(["demo", "--port", "0", "--data-dir"]).arg(&kept).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    verify("embedded", &kept, &[]).expect_success();
}

/// On a terminal, lines are short and coloured; closing the terminal ends the demo.
#[test]
fn the_demo_on_a_terminal_is_readable_and_ends_with_it() {
    for (variable, is_coloured) in [("NO_COLOR", false), ("NO_OTHER", true)] {
        let temp = Folder::new("demo");
        let data = temp.file("demo");
        let shown = temp.file("shown");
        let mut command = program();
        // `script` of util-linux runs a command on a terminal.
        let inner =
            format!("exec {} demo --days 1 --port 0 --data-dir {}", command.get_program().display(), data.display());
        let environment: Vec<_> =
            command.get_envs().map(|(key, value)| (key.to_owned(), value.map(ToOwned::to_owned))).collect();
        command = Command::new("script");
        for (key, _) in environment.iter().filter(|(_, value)| value.is_none()) {
            command.env_remove(key);
        }
        command.args(["-qefc", &inner]).arg(&shown).env("TERM", "xterm").env_remove("NO_COLOR").env(variable, "1");
        let mut demo = Demo::spawn(&temp, command);
        let text = || fs::read_to_string(&shown).unwrap_or_default();
        wait_until("the demo's banner", || text().contains("Ctrl-C"));
        wait_until("an event", || text().contains("readings were rejected"));
        let text = text();
        assert_eq!(text.contains("\x1b[1mhourglass"), is_coloured, "{text}");
        assert!(!text.contains("{\"timestamp\""), "{text}");
        // Regression: a rejection started with its sender and quoted the line with escapes.
        if !is_coloured {
            let rejected = text.lines().find(|line| line.contains("readings were rejected")).unwrap();
            let places = ["reason=", " line=", " count=", " token="].map(|part| rejected.find(part));
            assert!(places.is_sorted() && places[0].is_some(), "{rejected}");
            assert!(!rejected.contains("\\\""), "{rejected}");
        }
        demo.process.kill();
        wait_until("the demo's end", || !data.exists());
    }
}

/// Compares the pictures in `docs/images` with those that the test takes.
#[test]
fn the_pictures_of_the_docs_show_the_demo() {
    let Some(browser) = Browser::start() else { return };
    let temp = Folder::new("demo");
    let mut command = program();
    // A week to compare with.
    command.args(["demo", "--days", "9", "--port", "0", "--seed", "1"]);
    let mut demo = Demo::spawn(&temp, command);
    let url = demo.url();
    demo.row("stop");
    let halls = "explore?m=climate&f=temp&range=24h&where=%5B%22sensor%22%2C%22hall%22%5D&where=%5B%22site%22%2C%22bremen%22%5D&by=line&still=1";
    let energy = "explore?m=energy&f=power_kw&range=24h&by=site&week=1&still=1";
    for (name, view, (width, height), scheme) in [
        ("docs-explore", halls, (1200, 800), "light"),
        ("docs-explore-dark", energy, (1200, 800), "dark"),
        ("docs-phone", halls, (390, 780), "light"),
    ] {
        browser.look(width, height, scheme);
        browser.load_until(&format!("{url}/#{view}"), "document.querySelector('.plot canvas')");
        if width > 1000 {
            let event = json!({ "type": "mouseMoved", "x": 760, "y": 560 });
            browser.devtools("Input.dispatchMouseEvent", event);
            browser.wait("document.querySelector('.tip')?.hidden === false");
        }
        browser.picture(name);
        browser.expect_calm(name);
    }
    demo.end_by("INT");
}
