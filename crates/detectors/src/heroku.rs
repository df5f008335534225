//! `heroku`: the metadata of a dyno, which Heroku puts into environment variables.

use crate::attributes::{DetectedResource, Gathered};
use crate::{Detection, DetectionError};

pub(crate) fn detect(detection: &Detection<'_>) -> Result<DetectedResource, DetectionError> {
    let variable = |name| detection.machine.variable(name);
    let (dyno, app) = (variable("HEROKU_DYNO_ID"), variable("HEROKU_APP_ID"));
    if dyno.is_none() && app.is_none() && detection.config.fail_on_missing_metadata {
        return detection.absent("neither HEROKU_DYNO_ID nor HEROKU_APP_ID is set");
    }
    let mut gathered = Gathered::new(&detection.config.heroku.resource_attributes);
    gathered
        .optional("service.instance.id", dyno)
        .optional("heroku.app.id", app)
        .optional("heroku.dyno.id", dyno)
        .optional("cloud.provider", app.map(|_| "heroku"))
        .optional("service.name", variable("HEROKU_APP_NAME"))
        .optional(
            "heroku.release.creation_timestamp",
            variable("HEROKU_RELEASE_CREATED_AT"),
        )
        .optional("service.version", variable("HEROKU_RELEASE_VERSION"))
        .optional("heroku.release.commit", variable("HEROKU_SLUG_COMMIT"));
    Ok(gathered.finish())
}

#[cfg(test)]
mod tests {
    use crate::BuiltInDetector::Heroku;
    use crate::testing::{Fixture, text_pairs};

    #[tokio::test]
    async fn dyno_has_the_metadata_of_its_release() {
        let fixture = Fixture::new(&[
            ("HEROKU_DYNO_ID", "d"),
            ("HEROKU_APP_ID", "a"),
            ("HEROKU_APP_NAME", "shop"),
            ("HEROKU_RELEASE_VERSION", "v1"),
        ]);
        let found = fixture.detect(Heroku).await.unwrap();
        assert_eq!(
            text_pairs(&found),
            [
                ("cloud.provider", "heroku"),
                ("heroku.app.id", "a"),
                ("heroku.dyno.id", "d"),
                ("service.instance.id", "d"),
                ("service.name", "shop"),
                ("service.version", "v1"),
            ]
        );
    }

    #[tokio::test]
    async fn other_platform_is_an_error_only_on_request() {
        let mut fixture = Fixture::new(&[]);
        assert!(fixture.detect(Heroku).await.unwrap().attributes.is_empty());
        fixture.config.fail_on_missing_metadata = true;
        assert!(fixture.detect(Heroku).await.is_err());
    }
}
