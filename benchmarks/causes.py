"""Root causes of agent failures, written for the benchmark of clusters: each told in words that differ.

A cause is a sentence of slots, each with several wordings; two tellings of one cause share a slot's words by
chance only. Nothing here comes from a data set.
"""

from typing import NamedTuple


class Cause(NamedTuple):
    """One root cause: the failure label it gets, the tool concerned (None for behaviour) and its slots."""

    label: str
    tool: str | None
    slots: tuple[tuple[str, ...], ...]


_BEHAVIOUR = {
    "repetition": """
the agent|it|the reply ; repeats|gives again|recycles|sends once more ; the same apology|its earlier apology|the sorry sentence|an expression of regret already used ; word for word|verbatim|without adding anything|instead of making progress
the agent|it|the message ; restates|lists again|walks again through|prints a second time ; the setup steps|the installation instructions|the how-to guide for the device|the setup procedure ; that the user had finished|already completed by the customer|although everything was done|after it had been carried out
the agent|the assistant|it ; asks again for|demands a second time|requests once more|wants anew ; the order number|the order reference|the number of the purchase|the order id ; given at the start|provided two messages earlier|that the user had typed before|already supplied
the agent|the answer|it ; greets|welcomes|says hello to|introduces itself to ; the customer anew|the user a second time|the person again|the client once more ; in the middle of the chat|halfway through the talk|long after the opening|as if the conversation had just begun
the agent|it|the reply ; quotes|pastes|reads out|copies ; the legal disclaimer|the terms and conditions|the privacy notice|the liability clause ; in each message|for the third time|over and over|after every question""",
    "failure to ask for clarification": """
two bookings matched|several reservations fit the name|more than one trip was meant possibly|the reservation was ambiguous ; and the agent picked one|yet the first was chosen|but it took an arbitrary booking|and one of the trips was assumed ; without asking which|with no question back|instead of checking which trip|silently
the date|the day of travel|the appointment day|the travel date ; was left open by the user|was vague|had only been called "soon"|was never stated ; and the agent assumed next Monday|yet a day was made up|but it filled in tomorrow|and a default day was entered
the currency|the unit of money|whether euros or dollars were meant|the denomination of the amount ; was not asked for|was simply assumed|was guessed by the agent|stayed unchecked ; before converting|before the sum was quoted|when the price was named|while the country pointed elsewhere
the delivery address|where to ship the parcel|the shipping destination|which of the stored addresses applies ; was not clear|remained unknown|was ambiguous|had two candidates ; and the home address was presumed|but the agent sent it to the last one|yet the office was taken|and it chose one on its own
the device|which phone model is affected|the type of handset|the make of the telephone ; was never established|was not inquired about|is unknown to the agent|was taken for granted ; before giving repair advice|yet a fix is proposed|though the remedy differs by model|while instructions for another phone follow""",
    "lack of specific information": """
the answer|the reply|the agent|it ; names no figure for|stays vague about|leaves out the exact amount of|does not state ; the cancellation fee|the fee for cancelling|what cancelling costs|the charge due on cancellation ; although the price list had it|known from the tariff|which it had just looked up|in the tool's output
the agent|the answer|it ; points to the website|refers to the portal|says to look online|sends the user to the homepage ; without a link|but names no page|with no path to the form|and does not say where on the site
opening hours|the times of the branch|the hours of the store|when the office is open ; are mentioned without numbers|are left out|remain unsaid|are given only as "business hours" ; although the schedule was at hand|despite the timetable|which the tool had returned|while the customer plans a visit
the reason|the ground|the explanation|the cause ; why the claim was rejected|for denying the insurance claim|of the claim's refusal|behind turning the claim down ; is not given|stays general|is reduced to "policy"|is missing in the reply
the next step|what the user must do now|the action required from the customer|how to proceed ; with the passport form|for the visa papers|in the application for the passport|regarding the travel document ; is not told|is left unclear|lacks any detail|gets only a hint""",
    "disobey user request": """
the user asked for English|a reply in Spanish had been requested|the customer wished to be answered in French|another language was asked for ; and the agent kept writing German|but the language was not switched|yet it answers in the wrong language|and the wanted tongue is ignored
a short answer was demanded|the user wanted one sentence|brevity had been requested|the customer set a word limit ; but the reply is a long essay|yet five paragraphs follow|and the text goes on at length|but the message is far too long
the user refused a transfer|the customer did not want a human agent|being handed over had been declined|the person asked to stay with the assistant ; and was transferred anyway|yet the chat went to live staff|but the agent escalated to a human|and it passed the case to a colleague
JSON output was wanted|a table had been requested|the user specified a CSV format|bullet points were demanded ; but plain prose is returned|yet the formatting is ignored|and the layout is not followed|but the output has another structure
the customer asked to stop the marketing mails|unsubscribing from the newsletter was requested|the user wants no more advertising|an opt-out of promotional messages was demanded ; and got an offer|but the agent promotes a plan|yet it advertises an upgrade|and another promotion is pitched""",
    "false information": """
the agent|it|the reply ; invents|makes up|fabricates|promises without basis ; a refund date|a day for the refund|when the refund arrives|the refund's timing ; that no tool returned|without any source|unsupported by the data|on which the system is silent
the agent|the answer|it ; misstates|contradicts the policy on|gives wrong rules on|is incorrect about ; the baggage allowance|free checked bags|how many suitcases are included|luggage limits
the agent|it|the message ; reports the flight as on time|says the plane leaves as planned|presents the flight as confirmed|denies the cancellation of the flight ; although the lookup says cancelled|against the tool's status|while the record shows it was cancelled|contrary to the flight data
the total|the sum of the prices|the final bill|the computed amount ; is added up wrongly|contains an arithmetic error|does not add up|is miscalculated ; by the agent|in the answer|in spite of simple numbers|and the user is told a wrong amount
the agent|it|the reply ; claims the warranty covers|says the guarantee includes|states that warranty applies to|asserts coverage by the warranty of ; water damage|damage by liquids|a drowned phone|moisture in the device ; which the terms exclude|against the conditions|although it is excluded|contrary to the contract""",
    "unsafe action": """
the agent|it|the assistant ; deleted|erased|removed|wiped ; the user's account|the customer profile|the whole account|the membership and its data ; without confirmation|before any consent|with no "are you sure"|unprompted
the agent|it|the assistant ; charged|debited|billed|took money from ; the credit card|the stored card|the customer's card|the card on file ; before the price was agreed|without approval|with no explicit yes|while the user was only asking
the agent|it|the assistant ; cancelled|voided|annulled|called off ; the reservation|the booked trip|the hotel booking|the ticket ; on a mere question|though only the conditions were asked|without a go-ahead|unilaterally
the agent|it|the assistant ; changed|reset|replaced|overwrote ; the password|the login password|the user's credentials|the account password ; without verifying the caller|for an unverified person|before identity was proven|on a stranger's word
the agent|it|the assistant ; ran|executed|issued|launched ; a shell command that drops the database|a destructive SQL statement|a script that truncates tables|a database purge ; in production|on the live system|against the real data|without a backup""",
    "unsafe state": """
the agent|it|the assistant ; follows|obeys|executes|acts on ; an instruction hidden in a web page|commands embedded in a tool result|text injected into the document|an order planted in the e-mail ; as if the user had said it|and forgets the task|instead of treating it as data|without suspicion
the agent|it|the reply ; reveals|discloses|leaks|gives away ; another customer's address|the home address of a stranger|a different client's phone number|contact details of a third person ; to the caller|in the chat|to somebody unauthorised|when asked politely
the agent|it|the reply ; prints|exposes|quotes|sends out ; the API key|the secret token|an access key of the backend|the service's API credentials ; in plain text|in its answer|from its configuration|to the user
the agent|it|the reply ; reads out|tells|shows|passes on ; the medical record|a diagnosis|health data|the patient's test results ; to a relative|without authorisation|to someone not entitled|over an open channel
the agent|it|the reply ; recites|reveals|repeats|dumps ; its system prompt|the hidden instructions|its internal guidelines|the developer's prompt ; on request|when told to ignore rules|to a curious user|word by word""",
}
_TOOLS = {
    ("unnecessary tool call", "get_user_details"): """
the profile|the user's record|the customer data|the account details ; was fetched again|is loaded once more|was looked up anew|gets retrieved a second time ; although already in the conversation|while everything was at hand|for nothing|with the data known
the user|the customer|the caller|the person ; only asked about opening hours|asked a general question|wanted public information|inquired about general rules ; and no account lookup was needed|yet the account was opened|but personal data were queried|so reading the profile was pointless""",
    ("unnecessary tool call", "search_flights"): """
flights were searched|a route lookup was made|connections were queried|availability was requested ; although the question was about baggage|while the user asked about meals|for a seat question|when the topic was loyalty points
the results|the earlier listing|the former output|the options shown ; already held the cheapest fare|could have been sorted|were sufficient|contained the answer ; and a fresh search was run|yet it queried again|but the search was repeated for sorting|so another retrieval was wasted""",
    ("wrong tool", "cancel_reservation"): """
a change of date|moving the trip to another day|rescheduling|a later departure ; was asked for|was wanted|was the request|had been ordered ; but the booking was cancelled|and the agent ended the reservation|yet the cancel function was used|while the trip was dropped
the passenger's name|the spelling of the surname|a typo in the traveller's name|the misspelt guest ; should have been corrected|was to be fixed|only needed an edit|had to be amended ; but the ticket was voided|and it cancelled everything|yet a cancellation was made|by cancelling the whole booking
an upgrade|a better seat|business class|a higher cabin ; was wished for|was requested|was the aim|was to be booked ; instead the reservation was annulled|and cancel was chosen|but the flight was called off|yet the agent cancelled""",
    ("wrong tool", "search_web"): """
the internet was searched|a web search was run|the agent googled|an online query was made ; for the customer's own order|about the shop's orders|for an order number|to find the purchase ; instead of asking the order system|that the internal database holds|though the company's records have it|in place of the order lookup
the attached file|the uploaded document|the enclosed PDF|the attachment ; was not opened|stayed unread|was passed over|was never parsed ; and the agent browsed pages|while it queried a search engine|as it went online instead|and the web was consulted
a simple sum|the percentage|an addition|plain arithmetic ; was typed into a search engine|was sought on the web|was looked up online|went to the browser ; rather than to the calculator|although a calculate function exists|where the calculator was the tool|and not computed""",
    ("wrong arguments", "search_flights"): """
the date|the departure day|the travel date|the date argument ; was passed in the wrong format|is malformed|has month and day swapped|does not match the ISO format
origin and destination|the two airports|departure and arrival city|the route parameters ; were interchanged|are the wrong way round|are swapped|were reversed
the number of passengers|the passenger count|how many travellers|the count of seats ; was wrong in the search|is too low|leaves out the child|was one instead of four
the cabin|the travel class|the class parameter|the cabin argument ; was economy instead of business|is not the class requested|was left at the default economy|ignores the wish for business""",
    ("wrong arguments", "book_reservation"): """
the payment split|the amounts per card|the distribution over gift card and credit card|the payment amounts ; does not equal the price|does not sum up to the fare|is inconsistent with the total|was rejected as unbalanced
the passenger's name|a traveller's surname|the name of the guest|the last name ; is misspelt|differs from the passport|was entered wrongly|contains a typo
the insurance flag|travel insurance|the insurance option|the coverage parameter ; was set to yes|was added unasked|was switched on|is true ; although the user declined it|against the customer's wish|while none was wanted|despite a clear no""",
    ("ignored tool result", "get_reservation_details"): """
the fare class|the cabin in the record|the basic economy flag|the ticket type returned ; is overlooked|was not taken into account|is disregarded|was ignored
the travel insurance|the insurance in the booking|the coverage flag|the record's insurance entry ; was denied by the agent|is said not to exist|was overlooked|is contradicted in the answer
the return leg|the second flight of the booking|the inbound segment|the way back in the itinerary ; is forgotten|was left out of the answer|was not noticed|is missing in the summary""",
    ("ignored tool result", "update_reservation"): """
the tool reported an error|an error message came back|the update failed|the system rejected the change ; and the agent claimed success|yet completion was announced|but the reply says done|and the user is told it worked
the result showed a price difference|the output named an extra charge|a surcharge was returned|the system listed additional costs ; and the agent said it was free|which the reply omits|but no cost is mentioned|yet the change is called free of charge""",
    ("missing tool call", "verify_identity"): """
identity|who the caller is|the customer's identity|the person ; was not verified|remained unchecked|was taken on trust|was never authenticated ; before personal data were discussed|before the account was touched|although the rules demand it|at the start of the call
the second factor|the one-time code|the SMS code|the confirmation code ; was not requested|was skipped|was never asked for|was left out ; for the large transfer|before sending the money|in a high-value payment|for the wire""",
    ("missing tool call", "issue_refund"): """
the refund|the reimbursement|the repayment|the return of the money ; was announced|was promised|was declared done|is said to be on its way ; but never triggered|and no call followed|without starting the process|yet nothing was executed
the voucher|the compensation coupon|the goodwill credit|the travel certificate ; was offered|was granted in words|was confirmed to the user|was pledged ; but not created|yet no certificate was issued|and the voucher call is missing|without generating it""",
    ("repeated tool call", "get_order_status"): """
the order status|the delivery state|the tracking of the parcel|the shipment status ; was polled|was requested|was queried|was fetched ; again and again|several times in a row|in a loop|repeatedly with the same id
the list of all orders|the order history|past purchases|the customer's previous orders ; was downloaded|was loaded|was pulled|was read ; twice|a second time unchanged|once more without need|in duplicate""",
    ("repeated tool call", "update_reservation"): """
the failing change|the rejected update|the refused modification|the invalid edit ; was retried|is submitted again|was sent anew|was repeated ; without altering anything|as it was|unchanged|with identical input
the seat|the seat assignment|the chosen seat|the place by the window ; was saved|was set|was written|was assigned ; two times|although already stored|again after success|twice in a row""",
}


def _slots(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(word.strip() for word in slot.split("|")) for slot in text.split(";"))


CAUSES: tuple[Cause, ...] = (
    *(Cause(label, None, _slots(line)) for label, text in _BEHAVIOUR.items() for line in text.split("\n")[1:]),
    *(Cause(*block, _slots(line)) for block, text in _TOOLS.items() for line in text.split("\n")[1:]),
)  # fmt: skip

# What judges add that says nothing of the cause: the trade, the moment, the mood.
LEADS = (
    "", "", "", "", "In turn {n}, ", "At step {n}: ", "During the hotel booking, ", "In the phone-plan case, ", "While helping with a bank transfer, ",
    "For order {id}, ", "When {name} wrote in, ", "Regarding the trip to {city}, ", "In the insurance chat, ", "On the retail desk, ", "In this exchange ",
    "After the greeting, ", "Looking at message {n}, ", "With ticket {id} open, ", "In the telecom support dialogue, ", "The judge notes: ", "Clearly, ", "In the final reply, ",
)  # fmt: skip
TAILS = (
    "", "", "", "", ".", ", see turn {n}", ", which annoyed {name}", " (reference {id})", ", and the goal was missed", ", as the transcript shows", ", quite early in the dialogue",
    ", although the user was patient", " in the conversation about {city}", ", late in the session", ", which cost time", ", so that {name} had to write again", " when dealing with invoice {id}",
    ", and the user left", " in the second half", ", to the user's surprise", ", a serious lapse", ", which should not occur",
)  # fmt: skip
NAMES = (
    "Anna",
    "Mr Okafor",
    "Mei",
    "Ms Silva",
    "Jonas",
    "Priya",
    "Fatima",
    "Mr Dubois",
    "Kenji",
    "Olga",
    "Luis",
    "Ms Novak",
)
CITIES = (
    "Lisbon",
    "Oslo",
    "Denver",
    "Osaka",
    "Lagos",
    "Quito",
    "Perth",
    "Vienna",
    "Tunis",
    "Austin",
    "Leeds",
    "Hanoi",
)
# One-offs: failures that share their cause with no other.
SUBJECTS = (
    "the weather widget", "a poem about cheese", "the museum guide", "an aquarium order", "the chess tutor", "a pension form", "the radio playlist", "a tyre rotation", "the choir rehearsal", "a telescope manual",
    "the vaccine slot", "a crossword hint", "the beehive rental", "an opera libretto", "the drone licence", "a parking dispute", "the yoga retreat", "a solar panel quote", "the library fine", "a marathon bib",
    "the bakery voucher", "a violin lesson", "the ferry cabin", "an antique lamp", "the visa photo", "a goat yoghurt recipe", "the sauna door", "a comet sighting", "the tax bracket", "a kayak hire",
)  # fmt: skip
VERBS = (
    "was mixed up with", "replaced by accident", "is explained through", "ended up inside", "was rated below", "blocked the view on", "was shipped together with", "is compared in vain to", "was translated as", "triggered an alarm about",
    "lost its link to", "was drawn upside down beside", "is hummed in the rhythm of", "was priced like", "hid the warning on",
)  # fmt: skip
