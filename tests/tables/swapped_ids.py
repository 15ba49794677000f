"""Never run. mypy refuses each line that ignores it: in strict mode, an ignore that is not needed is an error."""

from agent_eval.tables.agent_version import AgentId, AgentVersion, MethodologyVersion

agent, version = AgentId("lumen"), MethodologyVersion("1.3.0")
AgentVersion(agent, version)
AgentVersion(version, agent)  # type: ignore[arg-type]
AgentVersion("1.3.0", "lumen")  # type: ignore[arg-type]
AgentVersion.of("1.3.0", "lumen")  # type: ignore[call-arg]
pair = AgentVersion.of(agent_id="lumen", methodology_version="1.3.0")
first: MethodologyVersion = pair.agent_id  # type: ignore[assignment]
