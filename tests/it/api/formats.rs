//! JSON, NDJSON and CSV of readings, windows and latest values have one shape each.

use crate::support::prelude::*;

use super::{Client, client};

/// Three sensors of two measurements, with quoted text and a field named like a column.
fn create_filled(database: &str) -> Client<'_> {
    let client = client(database);
    client.keep("m,room=r1,site=a v=1.5,note=\"x, \\\"y\\\"\" 1000000000\nm,room=r1,site=a v=2i,ts=7i 2000000000");
    client.keep("m,site=b v=3,on=true 1000000000\nn v=4 1000000000");
    client
}

#[track_caller]
fn ask(client: &Client<'_>, path: &str, parameters: &str, accept: Option<&str>) -> Answer {
    let headers: Vec<(&str, &str)> = accept.into_iter().map(|accept| ("accept", accept)).collect();
    request("GET", &client.url(path, parameters), b"", &headers).expect("an answer").expect(200)
}

const READINGS: &str = "/api/v1/readings";
const SUMMARY: &str = "/api/v1/summary";
const LATEST: &str = "/api/v1/latest";

#[test]
fn tables_have_a_column_per_tag_and_field() {
    let client = create_filled("tables");
    let cases = [
        (
            READINGS,
            "measurement=m&epoch=s",
            "sensor,tag.room,tag.site,ts,note,on,%74s,v\r\n\
             \"m,room=r1,site=a\",r1,a,1,\"x, \"\"y\"\"\",,,1.5\r\n\
             \"m,room=r1,site=a\",r1,a,2,,,7,2\r\n\
             \"m,site=b\",,b,1,,true,,3\r\n",
        ),
        // The requested fields in their order, present or not.
        (
            READINGS,
            "sensor=m,site=b&fields=x,v",
            "sensor,tag.site,ts,x,v\r\n\"m,site=b\",b,1970-01-01T00:00:01Z,,3\r\n",
        ),
        // A part has the columns of the whole.
        (
            READINGS,
            "measurement=m&epoch=s&limit=1&order=desc",
            "sensor,tag.room,tag.site,ts,note,on,%74s,v\r\n\"m,room=r1,site=a\",r1,a,2,,,7,2\r\n",
        ),
        (READINGS, "sensor=unknown", "sensor,ts\r\n"),
        (
            LATEST,
            "epoch=s&fields=",
            "sensor,tag.room,tag.site,ts,note,on,%74s,v\r\n\
             \"m,room=r1,site=a\",r1,a,2,,,7,2\r\n\"m,site=b\",,b,1,,true,,3\r\nn,,,1,,,,4\r\n",
        ),
        (
            SUMMARY,
            "sensor=m,site=b&epoch=s&step=1d",
            "sensor,tag.site,start,end,v.count,v.min,v.max,v.sum,v.avg\r\n\"m,site=b\",b,0,86400,1,3,3,3,3\r\n",
        ),
        (
            SUMMARY,
            "measurement=m&epoch=s&step=1d&agg=max,count&fields=v",
            "sensor,tag.room,tag.site,start,end,v.max,v.count\r\n\
             \"m,site=b\",,b,0,86400,3,1\r\n\"m,room=r1,site=a\",r1,a,0,86400,2,2\r\n",
        ),
        (
            SUMMARY,
            "tag.site=~.&group_by=*&epoch=s&step=1d&agg=sum&fields=v",
            "measurement,start,end,v.sum\r\nm,0,86400,6.5\r\n",
        ),
    ];
    for (path, parameters, expected) in cases {
        let parameters = parameters.trim_end_matches("&fields=");
        let answer = ask(&client, path, parameters, Some("text/csv"));
        assert_eq!(answer.text(), expected, "{path} {parameters}");
        assert_eq!(answer.header("content-type"), Some("text/csv; charset=utf-8; header=present"));
        assert_eq!(answer.header("x-next-cursor").is_some(), parameters.contains("limit=1"), "{parameters}");
        assert_eq!(ask(&client, path, &format!("{parameters}&format=csv"), None).text(), expected, "by format=");
    }
}

#[test]
fn every_output_line_names_its_sensor() {
    let client = create_filled("lines");
    let of_a = "{\"sensor\":\"m,room=r1,site=a\",\"tags\":{\"room\":\"r1\",\"site\":\"a\"}";
    let of_b = "{\"sensor\":\"m,site=b\",\"tags\":{\"site\":\"b\"}";
    let reading = format!("{of_b},\"reading\":{{\"ts\":1,\"v\":3}}}}\n");
    let window = "\"window\":{\"start\":0,\"end\":86400,\"fields\":{\"v\":{";
    for (path, parameters, expected) in [
        (READINGS, "sensor=m,site=b&fields=v&epoch=s", reading.clone()),
        (READINGS, "measurement=m&tag.site=b&fields=v&epoch=s", reading.clone()),
        (LATEST, "measurement=n&epoch=s", "{\"sensor\":\"n\",\"tags\":{},\"reading\":{\"ts\":1,\"v\":4}}\n".to_owned()),
        (
            SUMMARY,
            "measurement=m&fields=v&agg=max&step=1d&epoch=s",
            format!("{of_b},{window}\"max\":3}}}}}}}}\n{of_a},{window}\"max\":2}}}}}}}}\n"),
        ),
        (
            SUMMARY,
            "measurement=m&fields=v&agg=max&step=1d&epoch=s&group_by=*",
            format!("{{\"measurement\":\"m\",\"tags\":{{}},{window}\"max\":3}}}}}}}}\n"),
        ),
    ] {
        let answer = ask(&client, path, parameters, Some("application/x-ndjson"));
        assert_eq!(answer.text(), expected, "{path} {parameters}");
        assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    }
}

#[test]
fn the_format_parameter_wins_over_the_header_and_json_is_the_default() {
    let client = create_filled("negotiated");
    for (accept, format, expected) in [
        (None, "", "application/json"),
        (Some("*/*"), "", "application/json"),
        (Some("application/json"), "csv", "text/csv; charset=utf-8; header=present"),
        (Some("text/csv"), "json", "application/json"),
        (Some("text/csv"), "ndjson", "application/x-ndjson"),
        (Some("text/csv;q=0.9, application/x-ndjson"), "", "application/x-ndjson"),
        (Some("image/png"), "", "application/json"),
    ] {
        let parameters = format!("measurement=m&format={format}");
        for path in [READINGS, SUMMARY, LATEST] {
            let answer = ask(&client, path, &parameters, accept);
            assert_eq!(answer.header("content-type"), Some(expected), "{path} {accept:?} {format}");
            assert!(answer.header("vary").is_some_and(|vary| vary.contains("accept")), "{path}");
        }
    }
    // Errors are always JSON.
    let error = client.get(READINGS, "measurement=m&format=csv&limit=0").expect(400);
    assert_eq!(error.header("content-type"), Some("application/json"));
}

/// Regression: a tag such as `=HYPERLINK(…)` was run as a formula when the CSV was opened in a spreadsheet.
#[test]
fn csv_text_is_never_a_spreadsheet_formula() {
    let client = client("guarded-tables");
    client.keep("=m,@k=+v,site=a\\ b -f=-1.5,n=-2i,on=true,s=\"=1+1\",t=\" \\\"@x\",u=\"-5\" 1000000000");
    let guarded = "measurement=%3Dm&format=csv&guard=spreadsheet";
    let sensor = "\"'=m,@k=+v,site=a\\ b\"";
    for path in [READINGS, LATEST] {
        let expected = format!(
            "\"sensor\",\"tag.@k\",\"tag.site\",\"ts\",\"'-f\",\"n\",\"on\",\"s\",\"t\",\"u\"\r\n\
             {sensor},\"'+v\",\"a b\",1,-1.5,-2,true,\"'=1+1\",\"' \"\"@x\",\"'-5\"\r\n"
        );
        assert_eq!(ask(&client, path, &format!("{guarded}&epoch=s"), None).text(), expected, "{path}");
    }
    let windows = ask(&client, SUMMARY, &format!("{guarded}&fields=-f&agg=sum&epoch=s"), None);
    let expected = format!(
        "\"sensor\",\"tag.@k\",\"tag.site\",\"start\",\"end\",\"'-f.sum\"\r\n{sensor},\"'+v\",\"a b\",0,3600,-1.5\r\n"
    );
    assert_eq!(windows.text(), expected);
    let influx = ask(&client, "/query", "epoch=s&guard=spreadsheet&q=SELECT+*+FROM+%22%3Dm%22", Some("text/csv"));
    let expected = "name,tags,\"time\",\"'-f\",\"'@k\",\"n\",\"on\",\"s\",\"site\",\"t\",\"u\"\n\
                    \"'=m\",\"\",1,-1.5,\"'+v\",-2,true,\"'=1+1\",\"a b\",\"' \"\"@x\",\"'-5\"\n";
    assert_eq!(influx.text(), expected);
    // Off by default, and in other formats. A text that looks like a number is in quotes.
    let plain = ask(&client, READINGS, "measurement=%3Dm&format=csv&epoch=s", None);
    assert!(plain.text().contains(",+v,a b,1,-1.5,-2,true,=1+1,\" \"\"@x\",\"-5\"\r\n"), "{}", plain.text());
    let json = ask(&client, READINGS, "measurement=%3Dm&guard=spreadsheet", None).json();
    assert_eq!(json["series"][0]["tags"]["@k"], "+v", "{json}");
    for path in [READINGS, SUMMARY, LATEST, "/query"] {
        let what = if path == "/query" { "q=SHOW+DATABASES" } else { "measurement=%3Dm" };
        let url = client.url(path, &format!("{what}&guard=excel"));
        let refused = request("GET", &url, b"", &[]).expect("an answer").expect(400);
        assert!(refused.text().contains("parameter guard"), "{path}: {}", refused.text());
    }
}
